// Tests dashboards and alerts on a gateway that runs. Needs nothing but Go, Prometheus and fairgate.
module fairgate/tests/boards

go 1.24
