package cluster

import (
	"fmt"
	"strings"
)

// A echoedKind is a kind of object about whose writes policies say what they see: with metadata that the server owns, with
// fields that it drops, and by each of its subresources.
type echoedKind struct {
	session string // its name
	path    string // "GROUP/VERSION:resource", or "resource" of the core group
	cluster bool   // it has no namespace
	named   string // what objects are called, with the name of a document in place of %s; that name itself when empty
	// document describes an object; %[1]s is the name of the document.
	document string
	change   string // an edit of the document that changes its spec
	// exempt is an edit of the status, or of another field that the server owns, and seen is where it shows: an expression.
	exempt, seen string
	// puts says that a PUT creates an object that does not exist.
	puts bool
	// posts says that objects are posted and not stored.
	posts        bool
	subresources []echoedSubresource
}

// A echoedSubresource is written by PUT and merge patch, or by POST.
type echoedSubresource struct {
	name string
	// document is what a PUT or POST sends; the one of the kind when empty.
	document string
	edits    []string // of that, and of the patch
	seen     []string // what policies print of it
	// posts has it written by POST, of objects of their own.
	posts bool
	// strategic has patches be strategic ones.
	strategic bool
	putsOnly  bool
}

const (
	evaluatedPodSpec = `"spec":{"containers":[{"name":"c","image":"good/app","resources":{"requests":{"cpu":"1"}}}]}`
	evaluatedLabels  = `"labels":{"s":"@all"}`
	// forgedUID is that of no object.
	forgedUID = "00000000-0000-0000-0000-000000000077"
)

// standard is a document with a spec.
func standard(apiVersion, kind, spec string) string {
	return `{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","metadata":{"name":"%[1]s",` + evaluatedLabels + `}` + spec + `}`
}

func withTemplate(kind, more string) string {
	return standard("apps/v1", kind, `,"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},`+evaluatedPodSpec+`}`+more+`}`)
}

// forgeries are edits of metadata, each of a field that the server owns.
var forgeries = []string{
	`metadata.deletionTimestamp="2020-01-01T00:00:00Z"`,
	`metadata.deletionGracePeriodSeconds=77`,
	`metadata.creationTimestamp="2019-01-01T00:00:00Z"`,
	`metadata.generation=77`,
	`metadata.selfLink="/forged"`,
	`metadata.managedFields=[{"manager":"forged","operation":"Update","apiVersion":"v1","time":"2019-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:s":{}}}}}]`,
	`metadata.uid="` + forgedUID + `"`,
}

// immutable are those of them that an update may not have.
func immutable(forgery string) bool {
	return strings.HasPrefix(forgery, "metadata.deletion") || strings.HasPrefix(forgery, "metadata.uid")
}

// exemptions are edits of metadata that is the client's own, unless it writes a subresource.
var exemptions = []string{
	`metadata.labels.exempt="yes"`,
	`metadata.annotations.exempt="yes"`,
	`metadata.finalizers=["example.com/exempt"]`,
	`metadata.ownerReferences=[{"apiVersion":"v1","kind":"ConfigMap","name":"exempt","uid":"` + forgedUID + `"}]`,
}

// isExempt are expressions: why an object is not evaluated.
var isExempt = []string{
	`object.?metadata.?deletionTimestamp.hasValue()`,
	`object.?metadata.?deletionGracePeriodSeconds.hasValue()`,
	`string(object.?metadata.?creationTimestamp.orValue('')).startsWith('2019')`,
	`string(object.?metadata.?generation.orValue(0)) == '77'`,
	`object.?metadata.?selfLink.orValue('') != ''`,
	`object.?metadata.?uid.orValue('') == '` + forgedUID + `'`,
	`object.?metadata.?labels.?exempt.hasValue()`,
	`object.?metadata.?annotations.?exempt.hasValue()`,
	`object.?metadata.?finalizers.orValue([]).exists(f, f.contains('exempt'))`,
	`object.?metadata.?ownerReferences.orValue([]).exists(o, o.name == 'exempt')`,
}

// echoed are expressions, joined to the message of a policy.
var echoed = []string{
	`request.operation + ' ' + request.resource.resource + '/' + request.?subResource.orValue('') + ' ' + request.kind.kind`,
	`'name=' + object.?metadata.?name.orValue('-')`,
	`'deleted=' + string(object.?metadata.?deletionTimestamp.orValue('-'))`,
	`'grace=' + string(object.?metadata.?deletionGracePeriodSeconds.orValue('-'))`,
	`'created=' + (!object.?metadata.?creationTimestamp.hasValue() ? '-' : string(object.metadata.creationTimestamp).startsWith('2019') ? 'forged' : 'set')`,
	`'uid=' + (!object.?metadata.?uid.hasValue() ? '-' : object.metadata.uid == '` + forgedUID + `' ? 'forged' : 'set')`,
	`'version=' + (!object.?metadata.?resourceVersion.hasValue() ? '-' : object.metadata.resourceVersion == '77' ? 'forged' : 'set')`,
	`'generation=' + string(object.?metadata.?generation.orValue('-'))`,
	`'link=' + object.?metadata.?selfLink.orValue('-')`,
	`'labels=' + object.?metadata.?labels.?s.orValue('-') + object.?metadata.?labels.?exempt.orValue('-')`,
	`'annotations=' + object.?metadata.?annotations.?exempt.orValue('-')`,
	`'finalizers=' + object.?metadata.?finalizers.orValue([]).join('+')`,
	`'owners=' + object.?metadata.?ownerReferences.orValue([]).map(o, o.name).join('+')`,
	`'old=' + (oldObject == null ? '-' : string(oldObject.?metadata.?generation.orValue('-')) + oldObject.?metadata.?labels.?exempt.orValue('-'))`,
}

// printed is an expression for a field of the object; "-" if there is none.
func printed(path string) string {
	return `'` + path + `=' + string(object.?` + strings.ReplaceAll(path, ".", ".?") + `.orValue('-'))`
}

func (k echoedKind) name(of string) string {
	if k.named == "" {
		return of
	}
	return fmt.Sprintf(k.named, of)
}

// at is a path of the kind's objects.
func (k echoedKind) at(more string) string {
	if !k.cluster {
		return in(k.path + more)
	}
	root, resource := "/api/v1/", k.path
	if group, rest, found := strings.Cut(k.path, ":"); found {
		root, resource = "/apis/"+group+"/", rest
	}
	return root + resource + more
}

func (k echoedKind) item(name, subresource string) string {
	item := k.at("/" + k.name(name))
	if subresource != "" {
		item += "/" + subresource
	}
	return item
}

func (k echoedKind) of(name string, edits ...string) string {
	return edited(fmt.Sprintf(k.document, name), edits...)
}

// constraints are those of the policies about the kind.
func (k echoedKind) constraints() string {
	group, resource := "", k.path
	if version, rest, found := strings.Cut(k.path, ":"); found {
		group, _, _ = strings.Cut(version, "/")
		resource = rest
	}
	names := []string{resource}
	for _, one := range k.subresources {
		names = append(names, resource+"/"+one.name)
	}
	selector := `"namespaceSelector":{"matchLabels":{"s":"@all"}},`
	if k.cluster {
		selector = ""
	}
	return `spec.matchConstraints={` + selector + `"resourceRules":[` + rule(group, strings.Join(names, ","), "CREATE", "UPDATE") + `]}`
}

// EvaluatedObjectSessions are about which object policies see of each kind, and what is stored.
func EvaluatedObjectSessions() []Session {
	var all []Session
	for _, kind := range evaluatedObjectKinds() {
		j := newEvaluation("echo-" + kind.session)
		kind.write(j, kind.policies)
		all = append(all, j.Session)
	}
	return all
}

// write plays what clients do; the policies come when some objects are there.
func (k echoedKind) write(j *evaluation, policies func(*evaluation)) {
	j.begin()
	j.post(k.at(""), k.of("@x"))
	j.post(k.at(""), k.of("@evil"))
	for _, one := range k.subresources {
		if one.posts {
			j.post(k.at(""), k.of("@x-"+one.name))
			j.post(k.at(""), k.of("@evil-"+one.name))
		}
	}
	policies(j)
	k.creations(j)
	if k.posts {
		j.end()
		return
	}
	k.updates(j)
	for _, one := range k.subresources {
		k.subresource(j, one)
	}
	j.end()
}

// policies are two: one prints what it sees of every object, and one denies those that are called evil and not exempt.
func (k echoedKind) policies(j *evaluation) {
	message := echoed
	if k.seen != "" {
		message = append(message[:len(message):len(message)], `'seen=' + `+k.seen)
	}
	for _, one := range k.subresources {
		for _, expression := range one.seen {
			message = append(message[:len(message):len(message)], expression)
		}
	}
	mine := `{"name":"mine","expression":"request.name.contains('` + j.Name + `')"}`
	j.post(policiesPath, policy("@a", k.constraints(), `spec.matchConditions=[`+mine+`]`,
		mustHold(validation(`false`, fmt.Sprintf(`"messageExpression":%q`, strings.Join(message, ` + ' ' + `))))))
	j.post(bindingsPath, binding("@a", `spec.validationActions=["Warn"]`))
	conditions := []string{mine, `{"name":"evil","expression":"request.name.contains('evil')"}`}
	exempt := isExempt
	if k.seen != "" {
		exempt = append(exempt[:len(exempt):len(exempt)], k.seen+` == 'exempt'`)
	}
	for i, expression := range exempt {
		conditions = append(conditions, fmt.Sprintf(`{"name":"c%d","expression":%q}`, i, `!(`+expression+`)`))
	}
	j.post(policiesPath, policy("@b", k.constraints(), `spec.matchConditions=[`+strings.Join(conditions, ",")+`]`, mustHold(validation(`false`, `"message":"evil"`))))
	j.post(bindingsPath, binding("@b"))
	j.settle()
}

func (k echoedKind) creations(j *evaluation) {
	forged := forgeries
	if k.exempt != "" {
		forged = append(forged[:len(forged):len(forged)], k.exempt)
	}
	j.post(k.at(""), k.of("@post", forged...))
	j.get(k.item("@post", ""))
	j.post(k.at(""), k.of("@version", `metadata.resourceVersion="77"`))
	for i, forgery := range forged {
		j.post(k.at(""), k.of(fmt.Sprintf("@evil-%d", i), forgery))
	}
	j.post(k.at(""), k.of("@own", exemptions...))
	if k.posts {
		return
	}
	if k.puts {
		for i, forgery := range forged {
			name := fmt.Sprintf("@put-%d", i)
			j.put(k.item(name, ""), k.of(name, forgery))
			j.get(k.item(name, ""))
			name = fmt.Sprintf("@evil-put-%d", i)
			j.put(k.item(name, ""), k.of(name, forgery))
		}
	} else {
		j.put(k.item("@put", ""), k.of("@put", `metadata.generation=77`))
	}
	applied := []string{forged[2], forged[3], forged[4]}
	j.apply(k.item("@apply", ""), "me", k.of("@apply", applied...))
	j.get(k.item("@apply", ""))
	j.apply(k.item("@evil-apply", ""), "me", k.of("@evil-apply", forged[3]))
	j.apply(k.item("@evil-apply", ""), "me", k.of("@evil-apply", forged[0]))
}

func (k echoedKind) updates(j *evaluation) {
	version := func(name string) string { return `metadata.resourceVersion="{{rv:` + k.name(name) + `}}"` }
	var mutable []string
	for _, forgery := range forgeries {
		if !immutable(forgery) {
			mutable = append(mutable, forgery)
		}
	}
	if k.exempt != "" {
		mutable = append(mutable, k.exempt)
	}
	item := k.item("@x", "")
	changed := append(mutable[:len(mutable):len(mutable)], exemptions[1], version("@x"))
	if k.change != "" {
		changed = append(changed, k.change)
	}
	j.put(item, k.of("@x", changed...))
	j.get(item)
	j.put(item, k.of("@x"))
	j.get(item)
	for _, forgery := range forgeries {
		if immutable(forgery) {
			j.put(item, k.of("@x", forgery, version("@x")))
		}
	}
	j.patch(item, mergePatch, edited(`{}`, mutable...))
	j.patch(item, mergePatch, edited(`{}`, exemptions[0]))
	j.patch(item, mergePatch, edited(`{}`, forgeries[0]))
	j.patch(item, jsonPatch, `[{"op":"add","path":"/metadata/generation","value":77}]`)
	j.apply(item+"?force=true", "me", k.of("@x", forgeries[3]))
	j.get(item)
	for _, forgery := range append(mutable[:len(mutable):len(mutable)], forgeries[0], forgeries[1], forgeries[6]) {
		j.patch(k.item("@evil", ""), mergePatch, edited(`{}`, forgery))
		j.put(k.item("@evil", ""), k.of("@evil", forgery, version("@evil")))
	}
	j.get(k.item("@evil", ""))
}

func (k echoedKind) subresource(j *evaluation, one echoedSubresource) {
	document := one.document
	if document == "" {
		document = k.document
	}
	of := func(name string, edits ...string) string {
		return edited(fmt.Sprintf(document, name), append(edits[:len(edits):len(edits)], one.edits...)...)
	}
	forged := append(exemptions[:len(exemptions):len(exemptions)], forgeries[2], forgeries[3], forgeries[4])
	if k.exempt != "" && one.name != "status" {
		forged = append(forged, k.exempt)
	}
	if k.change != "" {
		forged = append(forged, k.change)
	}
	if one.posts {
		all := append(forged[:len(forged):len(forged)], forgeries[0], forgeries[1], forgeries[5], forgeries[6])
		for i, forgery := range all {
			if i < len(exemptions) || strings.HasPrefix(forgery, "metadata.") {
				j.post(k.item("@evil-"+one.name, one.name), of("@evil-"+one.name, forgery))
			}
		}
		j.post(k.item("@x-"+one.name, one.name), of("@x-"+one.name, forged...))
		j.get(k.item("@x-"+one.name, ""))
		j.get(k.item("@evil-"+one.name, ""))
		return
	}
	version := func(name string) string { return `metadata.resourceVersion="{{rv:` + k.name(name) + `}}"` }
	how := mergePatch
	if one.strategic {
		how = strategic
	}
	for _, name := range []string{"@x", "@evil"} {
		item := k.item(name, one.name)
		j.get(k.item(name, ""))
		j.put(item, of(name, append(forged[:len(forged):len(forged)], version(name))...))
		j.get(k.item(name, ""))
		for i, forgery := range append(forged[:len(forged):len(forged)], forgeries[0], forgeries[6]) {
			j.get(k.item(name, ""))
			if name == "@evil" || i > len(exemptions) {
				j.put(item, of(name, forgery, version(name)))
			}
			if !one.putsOnly {
				j.patch(item, how, edited(`{}`, append([]string{forgery}, one.edits...)...))
			}
		}
		j.get(k.item(name, ""))
	}
}
