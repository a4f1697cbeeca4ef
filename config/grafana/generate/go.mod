// Writes the dashboards of config/grafana from one description. Needs nothing but Go.
module fairgate/config/grafana/generate

go 1.24
