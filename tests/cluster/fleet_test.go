package cluster

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	fleetSeats       = 12 // of the two servers together
	fleetCoordinator = "fairgate_fleet_coordinator"
	fleetHas         = "fairgate_fleet_seats"
	// fleetAccount is who the shipped manifests make the gateways upstream.
	fleetAccount = "system:serviceaccount:fairgate-system:fairgate"
)

// Three gateways share the seats of two apiservers through leases there, with no rights but those of the shipped manifests. Seats follow demand;
// a gateway that is killed gives its seats back and gets some again; a server that is killed cuts no gateway off; no request through the others
// fails, and every acknowledged write is there.
func TestGatewaysOfAFleetBeforeTwoServersComeAndGo(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	ctx := inTime(t, 20*time.Minute)
	first := must[*Apiserver](t)(shared.StartApiserver("first-of-a-fleet", ""))
	second := must[*Apiserver](t)(shared.StartApiserver("second-of-a-fleet", "", "--etcd-prefix="+first.Prefix))
	token := shipFleet(t, ctx, first)
	succeeds(t, Grant(ctx, first.Admin, fleetAccount, SidecarRole))
	user := must[User](t)(shared.NewUser("user-of-a-fleet"))
	rules := []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "create"}}}
	succeeds(t, GrantRules(ctx, first.Admin, user.Name, "user-of-a-fleet", rules))
	var gateways []*Fairgate
	for _, name := range []string{"gw-0", "gw-1", "gw-2"} {
		gateway := newFairgate(t, FairgateOptions{
			Mode: "impersonate", Source: "sidecar", User: fleetAccount, Token: token, Servers: []string{first.URL, second.URL}, Seats: fleetSeats, Fleet: name,
		})
		succeeds(t, gateway.Launch())
		gateways = append(gateways, gateway)
	}
	for _, gateway := range gateways {
		succeeds(t, gateway.UntilReady())
	}
	untilShared(t, ctx, gateways, func(seats []float64) bool { return sum(seats) == fleetSeats })
	inExemptLevel(t, ctx, first, first.Admin)

	// One gateway is busy, another one has a writer.
	busy, calm := gateways[0], gateways[1]
	load, stop := context.WithCancel(ctx)
	defer stop()
	for range 3 * fleetSeats {
		go keepListing(load, t, busy, user)
	}
	client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(shared.Config(calm.Endpoint, user)))
	writer := startWriting(ctx, client)
	untilShared(t, ctx, gateways, func(seats []float64) bool { return sum(seats) == fleetSeats && seats[0] > fleetSeats/2 })

	// The busy one is gone: its seats come back, but for the one that is kept for it.
	busy.Kill()
	stop()
	writer.untilMore(t, ctx, 50)
	rest := gateways[1:]
	untilShared(t, ctx, rest, func(seats []float64) bool { return sum(seats) == fleetSeats-1 })
	writer.untilMore(t, ctx, 50)
	succeeds(t, busy.Start())
	untilShared(t, ctx, gateways, func(seats []float64) bool { return sum(seats) == fleetSeats })

	// A server is gone: its half of the seats, too, and no gateway is cut off.
	first.Kill()
	untilShared(t, ctx, gateways, func(seats []float64) bool { return sum(seats) == fleetSeats/2 })
	writer.untilMore(t, ctx, 50)
	succeeds(t, first.Start())
	untilShared(t, ctx, gateways, func(seats []float64) bool { return sum(seats) == fleetSeats })

	written, unknown := writer.stop(t)
	t.Logf("%d acknowledged writes, %d that may have run", len(written), len(unknown))
	list, err := first.Admin.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: "of=servers"})
	succeeds(t, err)
	storedAsWritten(t, list, written, unknown)
	for _, gateway := range gateways {
		if log := gateway.Log(1000); strings.Contains(log, "forbidden") {
			t.Errorf("%s lacks a right:\n%s", gateway.Name, log)
		}
	}
}

// shipFleet applies the manifests that operators apply for a fleet, and returns a file with a token of their service account.
func shipFleet(t *testing.T, ctx context.Context, server *Apiserver) string {
	t.Helper()
	for _, file := range []string{"deployment.yaml", "fleet/rbac.yaml"} {
		content := must[[]byte](t)(os.ReadFile(filepath.Join(manifests, file)))
		kubectl(t, server.Endpoint, shared.admin, string(content), "apply", "-f", "-")
	}
	request := &authenticationv1.TokenRequest{}
	answer, err := server.Admin.CoreV1().ServiceAccounts("fairgate-system").CreateToken(ctx, "fairgate", request, metav1.CreateOptions{})
	succeeds(t, err)
	file := filepath.Join(t.TempDir(), "token")
	succeeds(t, os.WriteFile(file, []byte(answer.Status.Token), 0o600))
	return file
}

// inExemptLevel fails if a server would queue what a gateway says to its fleet.
func inExemptLevel(t *testing.T, ctx context.Context, server *Apiserver, admin kubernetes.Interface) {
	t.Helper()
	level, err := admin.FlowcontrolV1().PriorityLevelConfigurations().Get(ctx, "exempt", metav1.GetOptions{})
	succeeds(t, err)
	header := http.Header{"Impersonate-User": {fleetAccount}}
	transport := shared.Transport(shared.admin, false)
	defer transport.CloseIdleConnections()
	const leases = "/apis/coordination.k8s.io/v1/namespaces/fairgate/leases"
	response, err := shared.Do(ctx, transport, server.Endpoint, shared.admin, http.MethodGet, leases, header, "")
	succeeds(t, err)
	defer response.Body.Close()
	if uid := response.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid"); response.StatusCode != http.StatusOK || uid != string(level.UID) {
		t.Errorf("the leases of the fleet were answered %d in the level %s; exempt is %s", response.StatusCode, uid, level.UID)
	}
}

// keepListing sends one request after the other. Those of a gateway that is killed fail.
func keepListing(ctx context.Context, t *testing.T, gateway *Fairgate, user User) {
	transport := shared.Transport(user, false)
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		response, err := shared.Do(ctx, transport, gateway.Endpoint, user, http.MethodGet, "/api/v1/namespaces/default/configmaps", nil, "")
		if err != nil {
			continue
		}
		if response.StatusCode >= 500 && ctx.Err() == nil {
			t.Errorf("%s answered %d", gateway.Name, response.StatusCode)
		}
		response.Body.Close()
	}
}

// untilShared waits until the gateways have seats of which holds is true, and one of them coordinates.
func untilShared(t *testing.T, ctx context.Context, gateways []*Fairgate, holds func(seats []float64) bool) {
	t.Helper()
	var seats, coordinate []float64
	err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		seats, coordinate = nil, nil
		for _, gateway := range gateways {
			for metric, values := range map[string]*[]float64{fleetHas: &seats, fleetCoordinator: &coordinate} {
				value, err := gateway.Metric(ctx, metric)
				if err != nil {
					return false, err
				}
				*values = append(*values, value)
			}
		}
		return holds(seats) && sum(coordinate) == 1, nil
	})
	if err != nil {
		states := ""
		for _, gateway := range gateways {
			_, dump, _ := gateway.Ask(ctx, "/debug/api_priority_and_fairness/dump_fleet")
			states += fmt.Sprintf("%s\n", dump)
		}
		t.Fatalf("the gateways still have %v seats, and %v coordinate: %v\n%s", seats, coordinate, err, states)
	}
}

func sum(values []float64) (all float64) {
	for _, value := range values {
		all += value
	}
	return all
}
