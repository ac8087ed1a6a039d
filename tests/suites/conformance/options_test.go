package conformance

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
)

// kindsWithFieldSelectors are the resources whose kinds have their own field selectors.
var kindsWithFieldSelectors = map[string]bool{
	"certificatesigningrequests": true, "clustertrustbundles": true, "events": true, "ipaddresses": true, "jobs": true,
	"namespaces": true, "nodes": true, "pods": true,
	"podcertificaterequests": true, "replicasets": true, "replicationcontrollers": true, "resourceslices": true,
	"secrets": true, "services": true,
}

// Options of requests are validated as upstream does, with its messages.
// Proves S11.
//
//style:long a table of calls, with the refusal of each
func TestOptionsAreChecked(t *testing.T) {
	c := sharedClient(t)
	o, _ := newOptionCalls(t, c, "o")
	long := strings.Repeat("m", 129)
	token := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

	const number = `strconv.ParseInt: parsing "x": invalid syntax`
	const manager = `fieldManager: Too long: may not be more than 128 bytes`
	for _, r := range []struct {
		call    call
		kind    string // kind of the options; empty: the query could not be parsed
		message string
	}{
		{o.list("limit=x"), "", number},
		{o.list("limit="), "", `strconv.ParseInt: parsing "": invalid syntax`},
		{o.list("timeoutSeconds=x"), "", number},
		{o.list("labelSelector=a%20b"), "", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, " +
			"gt, lt"},
		{o.list("fieldSelector=x"), "", "invalid selector: 'x'; can't understand 'x'"},
		{o.list("resourceVersion=x"), "", `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		{o.list("resourceVersion=-1"), "", "invalid resource version: "},
		{o.list("continue=!"), "", "invalid continue token: continue key is not valid: illegal base64 data at input " +
			"byte 0"},
		{o.list("continue=" + token("{")), "", "invalid continue token: continue key is not valid: "},
		{o.list("continue=" + token(`{"v":"v9","rv":1,"start":"a"}`)), "", "invalid continue token: continue key is not valid: server does not recognize this encoded version v9"},
		{o.list("continue=" + token(`{"v":"meta.k8s.io/v1","start":"a"}`)), "", "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
		{o.list("continue=" + token(`{"v":"meta.k8s.io/v1","rv":1}`)), "", "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"},
		{o.list("resourceVersion=7&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`)), "", "specifying resource version is not allowed when using continue"},
		{o.list("resourceVersionMatch=Exact"), "ListOptions", "resourceVersionMatch: Forbidden: resourceVersionMatch " +
			"is forbidden unless resourceVersion is provided"},
		{o.list("resourceVersionMatch=Exact&resourceVersion=0"), "ListOptions", `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{o.list("resourceVersionMatch=Some&resourceVersion=1"), "ListOptions", `resourceVersionMatch: Unsupported value: "Some": supported values: "Exact", "NotOlderThan", ""`},
		{o.list("resourceVersionMatch=Exact&resourceVersion=1&continue=x"), "ListOptions", "resourceVersionMatch: " +
			"Forbidden: resourceVersionMatch is forbidden when continue is provided"},
		{o.list("sendInitialEvents=false"), "ListOptions", "sendInitialEvents: Forbidden: sendInitialEvents is " +
			"forbidden for list"},
		{o.watch("sendInitialEvents=true"), "ListOptions", "resourceVersionMatch: Forbidden: sendInitialEvents " +
			"requires setting resourceVersionMatch to NotOlderThan"},
		{o.watch("sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1"), "ListOptions", `resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"`},
		{o.watch("resourceVersionMatch=NotOlderThan"), "ListOptions", "resourceVersionMatch: Forbidden: " +
			"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"},
		{o.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x"), "ListOptions",
			"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"},
		{o.watch("timeoutSeconds=x"), "", number},
		{get("/api/v1/watch/namespaces/o/configmaps?sendInitialEvents=true"), "ListOptions", "sendInitialEvents is " +
			"forbidden for list"},
		{get("%s?resourceVersion=x", o.one), "", "invalid resource version: "},
		{o.many("limit=x"), "", number},
		{o.many("resourceVersionMatch=Exact"), "ListOptions", "resourceVersionMatch is forbidden unless " +
			"resourceVersion is provided"},

		{o.tried("fieldManager=" + long), "CreateOptions", manager},
		{o.tried("fieldManager=a%07b"), "CreateOptions", `fieldManager: Invalid value: "a\ab": invalid character U+0007 (at position 1)`},
		{o.tried("dryRun=Some"), "CreateOptions", `dryRun: Unsupported value: ["All","Some"]: supported values: "All"`},
		{o.tried("fieldValidation=Some"), "CreateOptions", `fieldValidation: Unsupported value: "Some": supported values: "", "Ignore", "Strict", "Warn"`},
		{post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?dryRun=Some", "{}"), "CreateOptions",
			"dryRun: Unsupported value"},
		{post("/api/v1/namespaces/o/serviceaccounts/default/token?dryRun=Some", "{}"), "CreateOptions",
			"dryRun: Unsupported value"},
		{post("/api/v1/namespaces/o/pods/p/eviction?fieldManager="+long, "{}"), "CreateOptions", manager},
		{put(o.one+"?fieldManager="+long, o.sent), "UpdateOptions", manager},
		{put(o.one+"?dryRun=", o.sent), "UpdateOptions", `dryRun: Unsupported value: [""]: supported values: "All"`},
		{o.merge("force=false"), "PatchOptions", "force: Forbidden: may not be specified for non-apply patch"},
		{o.merge("fieldManager=" + long), "PatchOptions", manager},
		{o.apply("force=true"), "PatchOptions", "fieldManager: Required value: is required for apply patch"},
		{o.apply("fieldManager=m&fieldValidation=some"), "PatchOptions", "fieldValidation: Unsupported value"},

		{o.gone("gracePeriodSeconds=x"), "", number},
		{o.gone("gracePeriodSeconds="), "", `strconv.ParseInt: parsing "": invalid syntax`},
		{o.gone("propagationPolicy="), "DeleteOptions", `propagationPolicy: Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil"`},
		{o.gone("propagationPolicy=Orphan&orphanDependents=true"), "DeleteOptions", `propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set`},
		{o.gone("dryRun=Some"), "DeleteOptions", `dryRun: Unsupported value: ["All","Some"]: supported values: "All"`},
		{o.many("propagationPolicy=Wild"), "DeleteOptions", "propagationPolicy: Unsupported value"},
		{remove(o.one, `{"kind":"Pod","apiVersion":"v1"}`), "", `no kind "Pod" is registered for version "v1"`},
		{remove(o.one, `{"gracePeriodSeconds":"x"}`), "", ""},
	} {
		if r.kind == "" {
			c.mustRefuse(t, r.call, 400, "BadRequest", r.message)
			continue
		}
		a := c.mustRefuse(t, r.call, 422, "Invalid", r.message)
		if want := r.kind + `.meta.k8s.io "" is invalid: `; a.textAt("details.kind") != r.kind ||
			a.textAt("details.group") != "meta.k8s.io" ||
			!strings.HasPrefix(a.textAt("message"), want) {
			t.Errorf("%s: %s, details %v", r.call.path, a.textAt("message"), a.valueAt("details"))
		}
	}
	c.mustRefuse(t, o.gone("uid=other"), 409, "Conflict",
		"the UID in the precondition (other) does not match the UID in record")
	c.mustRefuse(t, o.gone("resourceVersion=1"), 409, "Conflict",
		"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record")
	// The type of a patch is checked before its options.
	c.mustRefuse(t,
		call{method: "PATCH", path: o.one + "?dryRun=Some", body: []byte("{}"), contentType: "application/json"}, 415,
		"UnsupportedMediaType", "")
}

// Proves S11.
func TestValidOptionsAreAccepted(t *testing.T) {
	c := sharedClient(t)
	o, made := newOptionCalls(t, c, "options")
	stored := made.textAt("metadata.resourceVersion")
	long := strings.Repeat("m", 129)
	for _, r := range []call{
		o.list("limit=-1"), o.list("limit=0"), o.list("timeoutSeconds=-1"),
		o.list("resourceVersion=0&resourceVersionMatch=NotOlderThan"), o.list("nothing=known&pretty=x"),
		o.list("limit=1&resourceVersion=" + stored), get("%s?resourceVersion=0", o.one),
		o.merge("dryRun=All&fieldManager=" + long[1:]), o.apply("fieldManager=m&dryRun=All&force"),
		put(o.one+"?fieldManager=", o.sent),
		o.gone("gracePeriodSeconds=-1"), o.gone("orphanDependents=false"),
		o.gone("uid=" + made.textAt("metadata.uid") + "&resourceVersion=" + stored), o.many("limit=-1"),
		o.many("watch=0"),
	} {
		c.mustAnswer(t, 200, r)
	}
	if a := c.mustAnswer(t, 200, o.list("limit=-1")); len(a.itemList()) < 1 || a.textAt("metadata.continue") != "" {
		t.Errorf("a limit below nothing: %s", a.raw)
	}
	for _, query := range []string{"resourceVersion=x",
		"resourceVersion=x&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
		c.mustRefuse(t, o.watch(query), 500, "",
			`resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`)
	}
	// A watch with an immediate timeout still begins.
	if w := c.watch(t, o.watch("timeoutSeconds=-1&labelSelector=none")); w.nextEvent() != nil {
		t.Error("a watch without time has an event")
	}
	// If a deletion has options in its body, only those are used.
	c.mustAnswer(t, 200, remove(o.one+"?propagationPolicy=Wild&gracePeriodSeconds=x",
		`{"apiVersion":"apps/v1","kind":"DeleteOptions","propagationPolicy":"Background"}`))
	c.mustRefuse(t, get("%s", o.one), 404, "NotFound", "")
}

// optionCalls are calls with options, on the config maps of a namespace.
type optionCalls struct {
	maps, one string // the paths of the collection, and of the object one
	sent      object // the object one as it was created
}

// newOptionCalls creates a namespace with a config map.
func newOptionCalls(t *testing.T, c *client, namespace string) (o optionCalls, made answer) {
	c.createNamespace(t, namespace)
	o.maps = "/api/v1/namespaces/" + namespace + "/configmaps"
	o.one = o.maps + "/one"
	o.sent = object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "one"}}
	return o, c.mustAnswer(t, 201, post(o.maps, o.sent))
}

func (o optionCalls) list(query string) call  { return get("%s?%s", o.maps, query) }
func (o optionCalls) watch(query string) call { return get("%s?watch=1&%s", o.maps, query) }
func (o optionCalls) merge(query string) call {
	return patch(o.one+"?"+query, "merge-patch+json", "{}")
}
func (o optionCalls) apply(query string) call {
	return patch(o.one+"?"+query, "apply-patch+yaml", o.sent)
}
func (o optionCalls) gone(query string) call { return remove(o.one+"?dryRun=All&"+query, nil) }
func (o optionCalls) many(query string) call { return remove(o.maps+"?dryRun=All&"+query, nil) }

func (o optionCalls) tried(query string) call {
	return post(o.maps+"?dryRun=All&"+query, withValue(o.sent, "metadata.name", "tried"))
}

// Pages that begin at a version have that version. A watch that begins with the existing objects marks their end.
// Proves S11.
func TestPagesAndWatchesHaveTheRequestedVersion(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "v")
	const maps = "/api/v1/namespaces/v/configmaps"
	made := func(name string) string {
		return c.mustAnswer(t, 201, post(maps, object{"metadata": object{"name": name, "labels": object{"a": "b"}}})).
			textAt("metadata.resourceVersion")
	}
	first := made("one")
	made("two")
	page := c.mustAnswer(t, 200, get("%s?labelSelector=a&limit=1&resourceVersion=%s", maps, first))
	if page.textAt("metadata.resourceVersion") != first || len(page.itemList()) != 1 ||
		page.textAt("metadata.continue") != "" {
		t.Errorf("a page at %s: %s", first, page.raw)
	}
	c.mustAnswer(t, 200, get(maps)) // afterwards the server has both objects in its cache
	if all := c.mustAnswer(t, 200,
		get("%s?labelSelector=a&resourceVersion=%s", maps, first)); len(all.itemList()) != 2 {
		t.Errorf("not older than %s: %v", first, objectNames(all.itemList()))
	}
	w := c.watch(t, get("%s?watch=1&allowWatchBookmarks=true&labelSelector=%s", maps, url.QueryEscape("a=b")))
	w.mustBeEvent("ADDED", "one")
	w.mustBeEvent("ADDED", "two")
	if e := w.nextEvent(); e["type"] != "BOOKMARK" || valueAt(e, "object.metadata.annotations") == nil {
		t.Errorf("the end of the existing objects: %v", e)
	}
}
