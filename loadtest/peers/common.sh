# What run and rows share: programs, the proxies with their configurations, and the processor that each has.
#
# shellcheck shell=bash
# shellcheck disable=SC2154 # `here` is set by who reads this file.
#
# CORES=1, the default: each proxy has one thread, on processor 0, and everything else has the others. CORES=2: each proxy
# has two threads, and shares all processors with the load generator and the server.
root=$(cd "$here/../.." && pwd)
cores=${CORES:-1}
script=loadtest/peers/$(basename "$0")
say() { printf '%s: %s\n' "$script" "$*" >&2; }

# What a proxy's command begins with, and that of all others.
on_proxy_core=()
on_other_cores=()
pin() {
  [[ $cores == 1 ]] || return 0
  local last=$(($(nproc --all) - 1))
  [[ $last -gt 0 ]] || { say 'one core for the proxy needs another one: CORES=2 shares what there is'; exit 1; }
  command -v taskset >/dev/null || { say 'taskset is missing: apt-get install util-linux, or CORES=2'; exit 1; }
  on_proxy_core=(taskset -c 0)
  on_other_cores=(taskset -c "1-$last")
}

# Installs and builds what is missing.
prepare() {
  local program packages=() target=${CARGO_TARGET_DIR:-$root/target}
  PATH=$PATH:/usr/sbin
  HAPROXY_BIN=${HAPROXY_BIN:-haproxy}
  for program in "$HAPROXY_BIN" nginx; do
    command -v "$program" >/dev/null && continue
    [[ $(id -u) == 0 ]] || { say "$program is missing, and only root may install it: apt-get install $program"; exit 1; }
    say "installing $program"
    apt-get install -y --no-install-recommends "$program" >/dev/null
  done
  [[ -n ${FAIRGATE_BIN:-} ]] || packages+=(-p fairgate)
  [[ -n ${LOADTEST_BIN:-} ]] || packages+=(-p fairgate-loadtest)
  [[ -n ${BARE_BIN:-} ]] || packages+=(-p fairgate-bare)
  [[ ${#packages[@]} == 0 ]] || cargo build --profile dist --locked --manifest-path "$root/Cargo.toml" "${packages[@]}"
  FAIRGATE_BIN=${FAIRGATE_BIN:-$target/dist/fairgate}
  LOADTEST_BIN=${LOADTEST_BIN:-$target/dist/fairgate-loadtest}
  BARE_BIN=${BARE_BIN:-$target/dist/fairgate-bare}
  if [[ -z ${APF_BIN:-} ]]; then
    command -v go >/dev/null || { say "Go is missing: install the version that apf/go.mod names or newer"; exit 1; }
    APF_BIN=$target/loadtest-peers/apf
    mkdir -p "${APF_BIN%/*}"
    (cd "$here/apf" && GOTOOLCHAIN=local CGO_ENABLED=0 GOWORK=off go build -o "$APF_BIN" .)
  fi
}

work=$(mktemp -d)
started=()
stop() {
  for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
  for process in "${started[@]}"; do wait "$process" 2>/dev/null || true; done
  started=()
}
trap 'stop; rm -rf "$work"' EXIT

# Waits until somebody listens at a port.
listens() {
  for _ in $(seq 1 500); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
    sleep 0.02
  done
  say "nothing listens at port $1"
  return 1
}

# Ports below those that the system gives to outgoing connections; another one for each process.
port=$((20000 + RANDOM % 5000))

# Begins with a scenario, whose name says what it needs: starts the server. Proxies speak to it as clients speak to them, unless
# they are to do it by http1, or http1+tls.
begin() {
  scenario=$1 scheme=http seats=100 targets=() access=() server_port='' server_protocol=http1
  local secure=()
  [[ $scenario != *free* ]] || seats=2000
  [[ $scenario != *http2* ]] || server_protocol=http2
  [[ $scenario != *tls* ]] || scheme=https
  server_scheme=$scheme
  if [[ -n ${2:-} ]]; then
    server_protocol=${2%+tls}
    [[ $2 == *+tls ]] || server_scheme=http
  fi
  if [[ $scheme == https ]]; then
    access=(--ca "$work/certificate.pem")
    certificate
  fi
  [[ $server_scheme == http ]] || secure=(--tls "$work")
  start_server "${secure[@]}"
  mkdir -p "$work/policies"
  policy >"$work/policies/policy.yaml"
  "$LOADTEST_BIN" tokens "$scenario" >"$work/tokens.csv"
}

# Starts the server of the scenario.
start_server() {
  : >"$work/upstream.json"
  "${on_other_cores[@]}" "$LOADTEST_BIN" upstream "$scenario" "$@" >"$work/upstream.json" &
  started+=($!)
  for _ in $(seq 1 500); do [[ -s $work/upstream.json ]] && break; sleep 0.02; done
  server_port=$(sed -E 's/.*"address":"127.0.0.1:([0-9]+)".*/\1/' "$work/upstream.json")
}

# A server writes a certificate, which it and the proxies then use.
certificate() {
  [[ ! -f $work/both.pem ]] || return 0
  start_server --tls "$work"
  # HAProxy wants both in one file.
  cat "$work/certificate.pem" "$work/key.pem" >"$work/both.pem"
  stop
}

# Notes a proxy that was just started at the next port, and waits for it.
started_target() {
  started+=($!)
  targets+=(--target "$1=$scheme://127.0.0.1:$port@$!")
  listens $((port++))
}

# A configuration of HAProxy or nginx: the file, and lines for HAProxy's frontend.
filled() {
  local protocol='' refusal='' listener='' server='' limit='' option=''
  [[ $scenario != *http2* ]] || protocol='proto h2'
  server=$([[ $server_protocol != http2 ]] || printf 'proto h2')
  # With TLS the protocol is negotiated.
  if [[ $scheme == https ]]; then
    protocol=''
    listener="ssl crt $work/both.pem alpn h2,http/1.1"
  fi
  if [[ $server_scheme == https ]]; then
    server="ssl ca-file $work/certificate.pem verify required alpn $([[ $server_protocol == http2 ]] && printf h2 || printf http/1.1)"
  fi
  if [[ $scenario == *refusals* ]]; then
    refusal="http-request deny deny_status 429 hdr Retry-After 1 if { srv_conn(upstream/one) ge $seats }"
    limit="limit_conn seats $seats; limit_conn_status 429; error_page 429 @refusal;"
  fi
  # Otherwise an event waits in the kernel for the next one, for up to 40 ms.
  [[ $scenario != *watch* ]] || option='option http-no-delay'
  sed -e "/MORE/{r ${2:-/dev/null}" -e 'd}' "$here/$1" |
    sed -e "s/THREADS/$cores/; s/PORT/$port/; s/UPSTREAM/$server_port/; s/SEATS/$seats/; s|DIRECTORY|$work|g" \
      -e "s/PROTOCOL/$protocol/; s|LISTENER|$listener|; s|SERVER|$server|; s|REFUSAL|$refusal|; s|LIMIT|$limit|; s/OPTION/$option/"
}

start_haproxy() {
  filled haproxy.cfg >"$work/haproxy.cfg"
  "${on_proxy_core[@]}" "$HAPROXY_BIN" -db -q -f "$work/haproxy.cfg" &
  started_target haproxy
}

# HAProxy with the headers that fairgate adds.
start_haproxy_headers() {
  # The token and the user of each line.
  sed -E 's/^([^,]*),([^,]*),.*/\1 \2/' "$work/tokens.csv" >"$work/users.map"
  filled haproxy.cfg "$here/haproxy-headers.cfg" >"$work/haproxy-headers.cfg"
  "${on_proxy_core[@]}" "$HAPROXY_BIN" -db -q -f "$work/haproxy-headers.cfg" &
  started_target haproxy+headers
}

start_nginx() {
  filled nginx.conf >"$work/nginx.conf"
  "${on_proxy_core[@]}" nginx -p "$work" -e stderr -c "$work/nginx.conf" &
  started_target nginx
}

# Kubernetes' flow control in a Go proxy.
start_apf() {
  local flags=()
  [[ $scenario != *http2* ]] || flags+=(-http2)
  [[ $scheme == http ]] || flags+=(-certificate "$work/certificate.pem" -key "$work/key.pem")
  GOMAXPROCS=$cores "${on_proxy_core[@]}" "$APF_BIN" -listen "127.0.0.1:$port" -upstream "$scheme://127.0.0.1:$server_port" \
    -seats "$seats" -policies "$work/policies" -tokens "$work/tokens.csv" "${flags[@]}" &
  started_target apf
}

# A proxy without features, with the client hyper or own.
start_bare() {
  local flags=()
  [[ $scenario != *http2* ]] || flags+=(--http2)
  "${on_proxy_core[@]}" "$BARE_BIN" --client "$1" --listen "127.0.0.1:$port" --upstream "127.0.0.1:$server_port" \
    --threads "$cores" "${flags[@]}" &
  started_target "bare-$1"
}

# fairgate by a name, with these settings of its log, and further keys.
start_fairgate() {
  local name=$1
  configuration "${2:-level: error}" "${3:-}" >"$work/$name.yaml"
  "${on_proxy_core[@]}" "$FAIRGATE_BIN" serve --config "$work/$name.yaml" 2>"$work/$name.log" &
  started_target "$name"
}

policy() {
  local response='{type: Queue, queuing: {queues: 64, handSize: 6, queueLengthLimit: 500}}'
  [[ $scenario != *refusals* ]] || response='{type: Reject}'
  cat <<POLICY
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: PriorityLevelConfiguration
metadata: {name: seats}
spec:
  type: Limited
  limited:
    # So many more than the 5 of catch-all that all seats are here.
    nominalConcurrencyShares: 1000
    lendablePercent: 0
    borrowingLimitPercent: 0
    limitResponse: $response
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: seats}
spec:
  matchingPrecedence: 1000
  priorityLevelConfiguration: {name: seats}
  distinguisherMethod: {type: ByUser}
  rules:
  - subjects:
    - kind: Group
      group: {name: system:authenticated}
    - kind: Group
      group: {name: system:unauthenticated}
    resourceRules:
    - {verbs: ["*"], apiGroups: ["*"], resources: ["*"], clusterScope: true, namespaces: ["*"]}
POLICY
}

configuration() {
  local tls='' ca=''
  [[ $scheme == http ]] || tls=', tls: {certFile: certificate.pem, keyFile: key.pem}'
  if [[ $server_scheme == https ]]; then
    # To a server with TLS it shows a credential, which this one does not read.
    ca=', caFile: certificate.pem, tokenFile: token'
    printf loadtest >"$work/token"
  fi
  cat <<CONFIG
apiVersion: fairgate.dev/v1alpha1
kind: Configuration
listen: {address: "127.0.0.1:$port"$tls}
upstream: {url: "$server_scheme://127.0.0.1:$server_port", protocol: $server_protocol$ca}
authentication:
  tokenFile: tokens.csv
  tokenReview: {enabled: false}
  anonymous: {enabled: true, paths: ["*"]}
flowControl:
  totalSeats: $seats
  bootstrap: mandatory
  policies: {directory: policies}
dataCores: $cores
admin: {address: "127.0.0.1:0"}
log: {$1}
drain: {delay: 0s, grace: 1s}
$2
CONFIG
}

# Measures the first target beside each other one.
compare() {
  # 1: an expectation fails, which the table shows.
  "${on_other_cores[@]}" "$LOADTEST_BIN" compare "$scenario" --pairs "${targets[@]}" "${access[@]}" "$@" || [[ $? == 1 ]]
}

# The machine and the programs, for the head of results.
machine() {
  printf -- '- %s, %s processors, %s\n' "$(sed -nE 's/^model name\s*: //p' /proc/cpuinfo | head -1)" "$(nproc --all)" \
    "$(sed -nE 's/^MemTotal:\s*//p' /proc/meminfo)"
  printf -- '- Linux %s, load before the run %s\n' "$(uname -r)" "$(cut -d' ' -f1-3 /proc/loadavg)"
  if [[ $cores == 1 ]]; then
    printf -- '- each proxy has one thread, on a processor of its own\n'
  else
    printf -- '- each proxy has %s threads, and shares all processors with the load generator and the server\n' "$cores"
  fi
  printf -- '- apf: a reverse proxy in Go behind the flow control of k8s.io/apiserver %s, %s\n' \
    "$(sed -nE 's/^\tk8s.io\/apiserver //p' "$here/apf/go.mod")" "$(go version 2>/dev/null || echo 'Go unknown')"
  printf -- '- %s\n' "$("$HAPROXY_BIN" -v | head -1 | cut -d' ' -f1-3)" "$(nginx -v 2>&1)" "$("$FAIRGATE_BIN" --version)"
}
