package cluster

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A notComparedResource is one of which objects are not compared.
type notComparedResource struct {
	resources *regexp.Regexp // group and resource
	why       string
}

// notCompared are the resources that clients may write and of which no session about evaluated objects is.
var notCompared = []notComparedResource{
	{regexp.MustCompile(`^ (nodes|pods|services)/(attach|exec|portforward|proxy)$`), "a connection, whose options are in the query"},
	{regexp.MustCompile(`^admissionregistration\.k8s\.io `), "a server does not ask its policies about them"},
	{regexp.MustCompile(`^authorization\.k8s\.io selfsubjectrulesreviews$`), "the order of the rules in its answer is left to chance"},
	{regexp.MustCompile(`^networking\.k8s\.io ipaddresses$`), "its name is an address; the test of equivalent versions compares its objects"},
}

// Of each built-in kind that a server lets clients write, and each of its subresources, objects are compared, unless a reason is listed.
func TestEvaluatedObjectsAreOfAllKindsOfAServer(t *testing.T) {
	t.Parallel()
	bed := must[*AdmissionBed](t)(admissionBed())
	areOfAllKinds(t, bed.Plain, evaluatedObjectKinds(), func(apiVersion string) string {
		group, _ := groupOf(apiVersion)
		return group
	})
}

// areOfAllKinds says whether these are all kinds that clients may write, and that a reason is listed for all others. Versions of one kind with the
// same name by `named` need not all be among them.
func areOfAllKinds(t *testing.T, server *Apiserver, kinds []echoedKind, named func(apiVersion string) string) {
	t.Helper()
	_, lists, err := server.Admin.Discovery().ServerGroupsAndResources()
	succeeds(t, err)
	known := map[string]bool{}
	for _, kind := range kinds {
		version, resource, found := strings.Cut(kind.path, ":")
		if !found {
			version, resource = "v1", kind.path
		}
		known[named(version)+" "+resource] = true
		for _, one := range kind.subresources {
			known[named(version)+" "+resource+"/"+one.name] = true
		}
	}
	written, missing := 0, []string{}
	used := make([]bool, len(notCompared))
	for _, list := range lists {
		group, _ := groupOf(list.GroupVersion)
		if strings.Contains(group, ".") && !strings.HasSuffix(group, ".k8s.io") {
			continue // custom resources of tests
		}
		for _, resource := range list.APIResources {
			writes := slices.ContainsFunc(resource.Verbs, func(verb string) bool { return verb == "create" || verb == "update" || verb == "patch" })
			if !writes {
				continue
			}
			written++
			key := group + " " + resource.Name
			listed := slices.IndexFunc(notCompared, func(one notComparedResource) bool { return one.resources.MatchString(key) })
			if listed >= 0 {
				used[listed] = true
			} else if key := named(list.GroupVersion) + " " + resource.Name; !known[key] {
				missing = append(missing, key)
			}
		}
	}
	if len(missing) > 0 || slices.Contains(used, false) {
		t.Errorf("of %d resources that clients may write, no session is about %q; reasons that hold for some: %v", written, missing, used)
	}
	t.Logf("%d resources that clients may write", written)
}
