package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// drownedSeats are few, so that one level has one of them: half of what elephants ask for waits or is refused.
	drownedSeats = 24
	// elephantsEach is how many requests of an elephant are in progress at each gateway.
	elephantsEach = 16
	// mouseAsks is how many requests of a mouse are counted.
	mouseAsks = 40
	// clientRetries is how often client-go sends a request again that was refused. A gateway whose reports are late on a busy machine has but the
	// seats of one that is cut off.
	clientRetries = 10
	dispatched    = "apiserver_flowcontrol_dispatched_requests_total"
)

// startFleetOfTwo starts two gateways of one fleet before two apiservers of one cluster, with the shipped rights.
func startFleetOfTwo(t *testing.T, ctx context.Context, name string, seats int) (gateways []*Fairgate, servers []*Apiserver) {
	t.Helper()
	first := must[*Apiserver](t)(shared.StartApiserver("first-of-"+name, ""))
	second := must[*Apiserver](t)(shared.StartApiserver("second-of-"+name, "", "--etcd-prefix="+first.Prefix))
	token := shipFleet(t, ctx, first)
	succeeds(t, Grant(ctx, first.Admin, fleetAccount, SidecarRole))
	for _, gateway := range []string{"gw-0", "gw-1"} {
		gateways = append(gateways, newFairgate(t, FairgateOptions{
			Mode: "impersonate", Source: "sidecar", User: fleetAccount, Token: token, Servers: []string{first.URL, second.URL}, Seats: seats, Fleet: gateway,
		}))
	}
	for _, gateway := range gateways {
		succeeds(t, gateway.Launch())
	}
	for _, gateway := range gateways {
		succeeds(t, gateway.UntilReady())
		inSync(t, gateway)
	}
	// A seat is kept for the third gateway that there may be.
	untilShared(t, ctx, gateways, func(granted []float64) bool { return sum(granted) == float64(seats-1) })
	return gateways, []*Apiserver{first, second}
}

// throughInTurn is what gateways serve together: requests go to one after the other.
func throughInTurn(t *testing.T, ctx context.Context, gateways []*Fairgate) *Hosted {
	t.Helper()
	server := &Hosted{Admin: must[string](t)(shared.Kubeconfig(gateways[0].Endpoint, shared.admin))}
	for _, gateway := range gateways {
		server.alternate = append(server.alternate, strings.TrimPrefix(gateway.URL, "https://"))
	}
	server.inEffect = func(level string) (bool, error) { return levelAtAll(ctx, gateways, level) }
	server.credential = func(user string) (User, error) { return shared.NewUser(user) }
	return server
}

// levelAtAll says whether each of the gateways has this level, with a schema that leads to it.
func levelAtAll(ctx context.Context, gateways []*Fairgate, level string) (bool, error) {
	for _, gateway := range gateways {
		_, text, err := gateway.Ask(ctx, "/metrics")
		if err != nil {
			return false, err
		}
		if !strings.Contains(text, fmt.Sprintf("priority_level=%q", level)) {
			return false, nil
		}
	}
	return true, nil
}

// Kubernetes' conformance tests of API Priority and Fairness pass where each request of their client goes to another gateway of a fleet, which
// sends it to one of two apiservers.
func TestTheConformanceSequencesPassThroughAFleet(t *testing.T) {
	aboutFairgate(t)
	oneAtATime(t)
	ctx := inTime(t, 20*time.Minute)
	gateways, _ := startFleetOfTwo(t, ctx, "conformance", 200)
	server := throughInTurn(t, ctx, gateways)
	client := server.client(t)
	t.Run("flow schemas", func(t *testing.T) { passSequence(t, server, flowSchemasIn("v1", client.FlowcontrolV1().FlowSchemas())) })
	t.Run("priority levels", func(t *testing.T) {
		passSequence(t, server, levelsIn("v1", client.FlowcontrolV1().PriorityLevelConfigurations()))
	})
	t.Run("classification", func(t *testing.T) { classifyByWhatIsHosted(t, server) })
	for _, gateway := range gateways {
		if forwarded := must[float64](t)(gateway.Sum(ctx, "fairgate_upstream_server_answers_total")); forwarded < 10 {
			t.Errorf("only %v requests went through %s", forwarded, gateway.Name)
		}
	}
}

// The end-to-end tests "should ensure that requests can't be drowned out" by priority and by fairness: a client that asks for much more than there
// is, through both gateways, takes nothing from one that asks for little through one of them. Each request of the mouse is answered, also where its level has
// one seat in the whole fleet, and refuses what does not fit; and the elephant has what is left: some requests at least.
func TestNobodyIsDrownedOutThroughAFleet(t *testing.T) {
	aboutFairgate(t)
	t.Parallel()
	ctx := inTime(t, 20*time.Minute)
	gateways, servers := startFleetOfTwo(t, ctx, "drowned", drownedSeats)
	elephant := must[User](t)(shared.NewUser("drowning-elephant"))
	mouse := must[User](t)(shared.NewUser("drowning-mouse"))
	for _, user := range []User{elephant, mouse} {
		succeeds(t, GrantRules(ctx, servers[0].Admin, user.Name, user.Name, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}}))
	}
	makeLargeConfigMaps(t, ctx, servers[0].Admin)
	t.Run("priority", func(t *testing.T) {
		refuse := flowcontrolv1.LimitResponse{Type: "Reject"}
		makeLevelFor(t, ctx, servers[0].Admin, gateways, "drowned-elephant", refuse, elephant)
		makeLevelFor(t, ctx, servers[0].Admin, gateways, "drowned-mouse", refuse, mouse)
		served, refused := drown(t, ctx, gateways, elephant, mouse)
		// Most of what the elephant asks for does not fit into its level.
		if served == 0 || refused == 0 {
			t.Errorf("the elephant was served %d times and refused %d times", served, refused)
		}
		if asked := must[float64](t)(gateways[1].Sum(ctx, dispatched, `priority_level="drowned-mouse"`)); asked < mouseAsks {
			t.Errorf("only %v requests of the mouse were in its own level", asked)
		}
	})
	t.Run("fairness", func(t *testing.T) {
		queue := flowcontrolv1.LimitResponse{Type: "Queue", Queuing: &flowcontrolv1.QueuingConfiguration{Queues: 64, HandSize: 6, QueueLengthLimit: 50}}
		makeLevelFor(t, ctx, servers[0].Admin, gateways, "drowned-both", queue, elephant, mouse)
		served, _ := drown(t, ctx, gateways, elephant, mouse)
		if served == 0 {
			t.Error("the elephant was never served")
		}
		// Of the second gateway, too: both users are in the one level there.
		if asked := must[float64](t)(gateways[1].Sum(ctx, dispatched, `priority_level="drowned-both"`)); asked < mouseAsks {
			t.Errorf("only %v requests were in the level of both", asked)
		}
	})
}

// drown has an elephant ask through both gateways all the time, and a mouse through the second one, one request after the other. It returns how many
// requests of the elephant were served and refused until the mouse was done. Each of the mouse has to be served.
func drown(t *testing.T, ctx context.Context, gateways []*Fairgate, elephant, mouse User) (served, refused int64) {
	t.Helper()
	load, stop := context.WithCancel(ctx)
	var oks, refusals atomic.Int64
	var clients sync.WaitGroup
	defer func() { stop(); clients.Wait() }()
	for _, gateway := range gateways {
		for range elephantsEach {
			clients.Go(func() {
				transport := shared.Transport(elephant, false)
				defer transport.CloseIdleConnections()
				for load.Err() == nil {
					switch code := listAt(load, transport, gateway, elephant); {
					case code == http.StatusOK:
						oks.Add(1)
					case code == http.StatusTooManyRequests:
						refusals.Add(1)
					case load.Err() == nil:
						t.Errorf("%s answered the elephant %d", gateway.Name, code)
						return
					}
				}
			})
		}
	}
	succeeds(t, poll(changeLimit, 20*time.Millisecond, func() (bool, error) { return oks.Load() > elephantsEach, nil }))
	transport := shared.Transport(mouse, false)
	defer transport.CloseIdleConnections()
	answered, retries := 0, 0
	for range mouseAsks {
		for range 1 + clientRetries {
			if listAt(ctx, transport, gateways[1], mouse) == http.StatusOK {
				answered++
				break
			}
			retries++
			time.Sleep(time.Second) // as Retry-After says
		}
	}
	served, refused = oks.Load(), refusals.Load()
	t.Logf("of the mouse's %d requests %d were answered, after %d retries; of the elephant's, %d were served and %d refused", mouseAsks, answered, retries, served, refused)
	if answered != mouseAsks {
		t.Errorf("%d of the mouse's %d requests were answered", answered, mouseAsks)
	}
	return served, refused
}

// listAt lists and reads everything; 0 if there is no answer.
func listAt(ctx context.Context, transport http.RoundTripper, gateway *Fairgate, user User) int {
	response, err := shared.Do(ctx, transport, gateway.Endpoint, user, http.MethodGet, "/api/v1/namespaces/default/configmaps", nil, "")
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// makeLargeConfigMaps makes lists take time: of 4 MB in all.
func makeLargeConfigMaps(t *testing.T, ctx context.Context, admin kubernetes.Interface) {
	t.Helper()
	for number := range 20 {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("large-%d", number)},
			Data:       map[string]string{"text": strings.Repeat("x", 200_000)},
		}
		must[*corev1.ConfigMap](t)(admin.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{}))
	}
}

// makeLevelFor makes a level of one share, and the schema by which these users' requests are in it, and waits until both are in force at all gateways.
func makeLevelFor(
	t *testing.T, ctx context.Context, admin kubernetes.Interface, gateways []*Fairgate, name string, response flowcontrolv1.LimitResponse, users ...User,
) {
	t.Helper()
	shares, zero := int32(1), int32(0)
	_, err := admin.FlowcontrolV1().PriorityLevelConfigurations().Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: "Limited", Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
			NominalConcurrencyShares: &shares, BorrowingLimitPercent: &zero, LimitResponse: response,
		}},
	}, metav1.CreateOptions{})
	succeeds(t, err)
	var subjects []flowcontrolv1.Subject
	for _, user := range users {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: "User", User: &flowcontrolv1.UserSubject{Name: user.Name}})
	}
	everywhere := flowcontrolv1.ResourcePolicyRule{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}, ClusterScope: true, Namespaces: []string{"*"}}
	_, err = admin.FlowcontrolV1().FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: flowcontrolv1.FlowSchemaSpec{
			MatchingPrecedence:         int32(500 - len(users)), // the later schema, of two users, comes first
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: name},
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: "ByUser"},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:      subjects,
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{everywhere},
			}},
		},
	}, metav1.CreateOptions{})
	succeeds(t, err)
	succeeds(t, poll(changeLimit, 50*time.Millisecond, func() (bool, error) { return levelAtAll(ctx, gateways, name) }))
}
