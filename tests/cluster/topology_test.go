package cluster

import (
	"context"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The apiserver listens on 127.0.0.1 and publishes the host's address at the same port; fairgate listens
// there. Whoever follows the kubernetes Service, as every pod does, thus reaches fairgate and cannot
// reach the apiserver.
func TestClientsOfTheKubernetesServiceReachFairgate(t *testing.T) {
	grantTesters(t)
	makeCrowd(t)
	ctx := inTime(t, 20*time.Minute)
	account := must[User](t)(shared.NewServiceAccount(ctx, "in-cluster", "controller"))

	host, port := serviceEndpoint(t, ctx)
	if host != shared.Advertise || port != strconv.Itoa(shared.Port) {
		t.Fatalf("the kubernetes Service has the endpoint %s:%s, want %s:%d", host, port, shared.Advertise, shared.Port)
	}
	published := net.JoinHostPort(host, port)
	if connection, err := net.DialTimeout("tcp", published, 5*time.Second); err == nil {
		connection.Close()
		t.Fatalf("somebody listens on %s before fairgate does", published)
	}

	test := func(t *testing.T) {
		// As rest.InClusterConfig builds it from KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT and the
		// files of the service account.
		config := &rest.Config{
			Host:            "https://" + published,
			TLSClientConfig: rest.TLSClientConfig{CAFile: shared.PKI.CA.Cert},
			BearerToken:     account.Token,
		}
		client := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(config))
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := review.Status.UserInfo.Username; got != account.Name {
			t.Errorf("is %s, want %s", got, account.Name)
		}
		list, err := client.CoreV1().ConfigMaps(crowdNamespace).List(ctx, metav1.ListOptions{Limit: 500})
		if err != nil || len(list.Items) != 500 {
			t.Errorf("list: %v, %v", len(list.Items), err)
		}
	}
	if *direct {
		relay(t, published, net.JoinHostPort("127.0.0.1", port))
		t.Run("direct", test)
		return
	}
	for _, mode := range Modes {
		t.Run(mode, func(t *testing.T) {
			startFairgate(t, FairgateOptions{Mode: mode, Listen: shared.Advertise, Port: shared.Port})
			test(t)
		})
	}
}

// serviceEndpoint waits for the address that the apiserver publishes for the kubernetes Service.
func serviceEndpoint(t *testing.T, ctx context.Context) (host, port string) {
	t.Helper()
	err := poll(changeLimit, 100*time.Millisecond, func() (bool, error) {
		slices, err := shared.Admin.DiscoveryV1().EndpointSlices("default").List(ctx,
			metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
		if err != nil {
			return false, err
		}
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				for _, published := range slice.Ports {
					host, port = endpoint.Addresses[0], strconv.Itoa(int(*published.Port))
					return true, nil
				}
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("no endpoint of the kubernetes Service: %v", err)
	}
	return host, port
}

// relay copies bytes between two addresses: the stand-in for fairgate when the test bed tests itself.
func relay(t *testing.T, from, to string) {
	t.Helper()
	listener := must[net.Listener](t)(net.Listen("tcp", from))
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, client) }()
				_, _ = io.Copy(client, server)
			}()
		}
	}()
}
