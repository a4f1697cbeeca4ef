package cluster

import (
	"fmt"
	"strings"
)

// configMapsPath is of objects that a gateway forwards, whatever it hosts.
const configMapsPath = "/api/v1/namespaces/default/configmaps"

// OverlaySessions are about policies for hosted objects that depend on objects of the upstream: params, namespaces, and
// rights of users.
func OverlaySessions() []Session {
	var all []Session
	for _, entry := range []struct {
		name  string
		write func(*script)
	}{
		{"config-params", enforcedConfigParams},
		{"local-params", enforcedLocalParams},
		{"namespaces", enforcedInLabelledNamespaces},
		{"rights", enforcedRights},
	} {
		s := &script{Session{Name: policySessions + "on-" + entry.name}}
		entry.write(s)
		all = append(all, s.Session)
	}
	return all
}

// renamed is the session with another prefix than [policySessions], so that it can be played beside the original on one server.
func (s Session) renamed(prefix string) Session {
	own, other := s.Name+"-", prefix+strings.TrimPrefix(s.Name, policySessions)+"-"
	replace := strings.NewReplacer(own, other).Replace
	renamed := s
	renamed.Name, renamed.Requests = strings.TrimSuffix(other, "-"), nil
	for _, request := range s.Requests {
		request.Path, request.Query, request.Body = replace(request.Path), replace(request.Query), replace(request.Body)
		if request.By != nil {
			by := *request.By
			by.Name = replace(by.Name)
			request.By = &by
		}
		renamed.Requests = append(renamed.Requests, request)
	}
	return renamed
}

func configMap(name, most string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","labels":{"s":"@all"}},"data":{"most":"%s"}}`, name, most)
}

// withConfigMaps is an edit of a policy: its params are ConfigMaps.
const withConfigMaps = `spec.paramKind={"apiVersion":"v1","kind":"ConfigMap"}`

// mostShares allows levels as many shares as a ConfigMap says.
func mostShares() string {
	return validations(validation(`object.kind != 'PriorityLevelConfiguration' || object.spec.limited.nominalConcurrencyShares <= int(params.data.most)`,
		`"messageExpression":"params.metadata.namespace + '/' + params.metadata.name + ' allows ' + params.data.most"`))
}

func enforcedConfigParams(s *script) {
	s.post(configMapsPath, configMap("@limit", "5"))
	s.inForce(policy("@a", withConfigMaps, mostShares()), binding("@a", `spec.paramRef={"name":"@limit","namespace":"default","parameterNotFoundAction":"Deny"}`))
	shares := func(count, code int) {
		s.post(levelsPath+"?dryRun=All", level("@x", fmt.Sprintf("spec.limited.nominalConcurrencyShares=%d", count)))
		s.until(code)
	}
	shares(5, 201)
	shares(6, 422)
	s.patch(configMapsPath+"/@limit", mergePatch, `{"data":{"most":"7"}}`)
	shares(6, 201)
	shares(8, 422)
	s.patch(configMapsPath+"/@limit", mergePatch, `{"data":{"most":"many"}}`)
	shares(6, 422)
	s.delete(configMapsPath + "/@limit")
	// The text changes when the deletion is known.
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"parameterNotFoundAction":"Allow"}}}`)
	shares(6, 201)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"parameterNotFoundAction":"Deny"}}}`)
	shares(1, 422)
	// It is found at once, whether the watch has delivered it or not.
	s.post(configMapsPath, configMap("@limit", "5"))
	shares(5, 201)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"namespace":null}}}`)
	shares(5, 422)
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"paramRef":{"namespace":"default","name":null,"selector":{"matchLabels":{"s":"@all"}}}}}`)
	shares(5, 201)
	shares(6, 422)
	s.released()
	s.delete(configMapsPath + "/@limit")
}

// Params are those in the namespace of the object. They are ResourceQuotas: no kind of params is that of two sessions, because a
// kube-apiserver follows a built-in kind only until the last policy goes that names it. These it always follows.
func enforcedLocalParams(s *script) {
	const quotasPath = "/api/v1/namespaces/default/resourcequotas"
	s.post(quotasPath, `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"@limit"},"spec":{"hard":{"count/nothings.example.com":"1"}}}`)
	s.post(policiesPath, policy("@a", `spec.paramKind={"apiVersion":"v1","kind":"ResourceQuota"}`,
		`spec.matchConstraints.resourceRules=[{"apiGroups":["policy"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["poddisruptionbudgets"]}]`,
		`spec.validations=[{"expression":"object.spec.minAvailable <= int(params.spec.hard['count/nothings.example.com'])","messageExpression":"params.metadata.namespace + ' allows less in ' + namespaceObject.metadata.name"}]`))
	s.post(bindingsPath, binding("@a", `spec.paramRef={"name":"@limit","parameterNotFoundAction":"Deny"}`))
	available := func(path string, count, code int) {
		s.post(path+"?dryRun=All", budget("@x", fmt.Sprintf(`spec={"minAvailable":%d}`, count)))
		s.until(code)
	}
	available(budgetsPath, 2, 422)
	available(budgetsPath, 1, 201)
	available(strings.Replace(budgetsPath, "default", "kube-public", 1), 1, 422)
	s.delete(bindingsPath + "/@a")
	available(budgetsPath, 2, 201)
	s.delete(policiesPath + "/@a")
	s.delete(quotasPath + "/@limit")
}

func enforcedInLabelledNamespaces(s *script) {
	const namespacesPath = "/api/v1/namespaces"
	s.post(namespacesPath, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"@space"}}`)
	s.patch(namespacesPath+"/@space", mergePatch, `{"metadata":{"labels":{"tier":"one"}}}`)
	budgets := strings.Replace(budgetsPath, "default", "@space", 1)
	s.post(policiesPath, policy("@a",
		`spec.matchConstraints.resourceRules=[{"apiGroups":["policy"],"apiVersions":["v1"],"operations":["*"],"resources":["*/*"]}]`,
		`spec.matchConstraints.namespaceSelector={"matchLabels":{"tier":"one"}}`,
		validations(validation(`!('show' in object.metadata.labels)`, `"messageExpression":"namespaceObject.metadata.name + ' has ' + namespaceObject.metadata.labels.tier"`))))
	s.post(bindingsPath, binding("@a"))
	refused := budget("@x", `metadata.labels.deny="yes"`)
	for _, tier := range []struct {
		label string
		code  int
	}{{"one", 422}, {"two", 201}, {"one", 422}} {
		s.patch(namespacesPath+"/@space", mergePatch, `{"metadata":{"labels":{"tier":"`+tier.label+`"}}}`)
		s.post(budgets+"?dryRun=All", refused)
		s.until(tier.code)
		s.post(budgets+"?dryRun=All", budget("@x", `metadata.labels.show="yes"`))
		s.post(budgetsPath+"?dryRun=All", refused)
	}
	s.patch(bindingsPath+"/@a", mergePatch, `{"spec":{"matchResources":{"namespaceSelector":{"matchLabels":{"tier":"none"}}}}}`)
	s.post(budgets+"?dryRun=All", refused)
	s.until(201)
	s.delete(bindingsPath + "/@a")
	s.delete(policiesPath + "/@a")
}

func enforcedRights(s *script) {
	const rbacPath = "/apis/rbac.authorization.k8s.io/v1"
	role := func(rules string) string {
		return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"@role"},"rules":[{"apiGroups":["flowcontrol.apiserver.k8s.io"],"resources":["*"],"verbs":["create"]}` + rules + `]}`
	}
	by := func(name string) {
		s.Requests[len(s.Requests)-1].By = &Requester{Name: s.Name + "-" + name}
	}
	s.post(rbacPath+"/clusterroles", role(""))
	s.post(rbacPath+"/clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"@role"},`+
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"@role"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"@author"}]}`)
	create := func(name string, code int) {
		s.post(levelsPath+"?dryRun=All", level("@x"))
		by(name)
		s.until(code)
	}
	create("author", 201)
	create("nobody", 403)
	s.inForce(policy("@a", `spec.variables=[{"name":"check","expression":"authorizer.group('').resource('configmaps').namespace('default').name('limits').check('update')"}]`,
		validations(validation(`variables.check.allowed() || request.userInfo.username.endsWith('nobody')`, `"messageExpression":"request.userInfo.username + ' may not: ' + variables.check.reason()"`),
			validation(`authorizer.requestResource.check('create').allowed()`, `"message":"who may not create it gets this far"`))), binding("@a"))
	create("author", 422)
	create("nobody", 403)
	s.put(rbacPath+"/clusterroles/@role", role(`,{"apiGroups":[""],"resources":["configmaps"],"verbs":["update"],"resourceNames":["limits"]}`))
	create("author", 201)
	s.put(rbacPath+"/clusterroles/@role", role(""))
	create("author", 422)
	s.released()
	s.delete(rbacPath + "/clusterrolebindings/@role")
	s.delete(rbacPath + "/clusterroles/@role")
}
