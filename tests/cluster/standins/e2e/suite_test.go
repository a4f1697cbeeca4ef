// Package apimachinery has what runs the specs of k8s.io/kubernetes/test/e2e/apimachinery about ValidatingAdmissionPolicies. In the
// original that is a program with the specs of all areas, and what they need of a cluster. Here it is built as a file of
// their own package, of which only these specs and what they call is kept (see ../../build).
//
// There are no nodes, so nothing waits for any.
package apimachinery

import (
	"flag"
	"os"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
)

func TestMain(m *testing.M) {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	framework.AfterReadingAllFlags(&framework.TestContext)
	os.Exit(m.Run())
}

func TestE2E(t *testing.T) {
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(t, "admission policies", suite, reporter)
}
