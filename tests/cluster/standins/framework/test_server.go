// Package framework stands in for the file test_server.go of k8s.io/kubernetes/test/integration/framework, as the package
// above it does for another one. The original runs a kube-apiserver with options that a test changes in Go; here the changed
// options become flags.
package framework

import (
	"context"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"k8s.io/apiserver/pkg/storage/storagebackend"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiservertesting "k8s.io/kubernetes/cmd/kube-apiserver/app/testing"

	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
)

// TestServerSetup has what a test changes of a server.
type TestServerSetup struct {
	ModifyServerRunOptions func(*options.ServerRunOptions)
	ModifyServerConfig     func(*controlplane.Config) // not available: these tests have none
}

// TearDownFunc ends a server.
type TearDownFunc func()

// StartTestServer has a server started with the flags that say what the setup has changed.
func StartTestServer(_ context.Context, t testing.TB, setup TestServerSetup) (client.Interface, *rest.Config, TearDownFunc) {
	t.Helper()
	if setup.ModifyServerConfig != nil {
		t.Fatal("the configuration of a server in another process cannot be changed")
	}
	changed := options.NewServerRunOptions()
	// As the original's.
	changed.Authorization.Modes = []string{"Node", "RBAC"}
	if setup.ModifyServerRunOptions != nil {
		setup.ModifyServerRunOptions(changed)
	}
	server := apiservertesting.StartTestServerOrDie(t, nil, flagsOf(changed), &storagebackend.Config{})
	clients, err := client.NewForConfig(server.ClientConfig)
	if err != nil {
		t.Fatal(err)
	}
	return clients, server.ClientConfig, TearDownFunc(server.TearDownFn)
}

// flagsOf are the flags by which options differ from those that nobody has changed.
func flagsOf(changed *options.ServerRunOptions) []string {
	defaults := map[string]string{}
	each(options.NewServerRunOptions(), func(flag *pflag.Flag) { defaults[flag.Name] = value(flag) })
	var flags []string
	each(changed, func(flag *pflag.Flag) {
		if text := value(flag); text != defaults[flag.Name] {
			flags = append(flags, "--"+flag.Name+"="+text)
		}
	})
	return flags
}

func each(of *options.ServerRunOptions, visit func(*pflag.Flag)) {
	named := of.Flags()
	for _, set := range named.FlagSets {
		set.VisitAll(visit)
	}
}

// value is the value of a flag in the form in which it is given.
func value(flag *pflag.Flag) string {
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		return strings.Join(list.GetSlice(), ",")
	}
	return flag.Value.String()
}
