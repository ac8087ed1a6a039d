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
func TestOptionsAreChecked(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "o")
	const maps, one = "/api/v1/namespaces/o/configmaps", "/api/v1/namespaces/o/configmaps/one"
	sent := object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": "one"}}
	made := c.mustAnswer(t, 201, post(maps, sent))
	stored := made.textAt("metadata.resourceVersion")
	long := strings.Repeat("m", 129)
	token := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	list := func(query string) call { return get("%s?%s", maps, query) }
	watch := func(query string) call { return get("%s?watch=1&%s", maps, query) }
	tried := func(query string) call {
		return post(maps+"?dryRun=All&"+query, withValue(sent, "metadata.name", "tried"))
	}
	merge := func(query string) call { return patch(one+"?"+query, "merge-patch+json", "{}") }
	apply := func(query string) call { return patch(one+"?"+query, "apply-patch+yaml", sent) }
	gone := func(query string) call { return remove(one+"?dryRun=All&"+query, nil) }
	many := func(query string) call { return remove(maps+"?dryRun=All&"+query, nil) }

	const number = `strconv.ParseInt: parsing "x": invalid syntax`
	const manager = `fieldManager: Too long: may not be more than 128 bytes`
	for _, r := range []struct {
		call    call
		kind    string // kind of the options; empty: the query could not be parsed
		message string
	}{
		{list("limit=x"), "", number},
		{list("limit="), "", `strconv.ParseInt: parsing "": invalid syntax`},
		{list("timeoutSeconds=x"), "", number},
		{list("labelSelector=a%20b"), "", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, " +
			"gt, lt"},
		{list("fieldSelector=x"), "", "invalid selector: 'x'; can't understand 'x'"},
		{list("resourceVersion=x"), "", `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		{list("resourceVersion=-1"), "", "invalid resource version: "},
		{list("continue=!"), "", "invalid continue token: continue key is not valid: illegal base64 data at input " +
			"byte 0"},
		{list("continue=" + token("{")), "", "invalid continue token: continue key is not valid: "},
		{list("continue=" + token(`{"v":"v9","rv":1,"start":"a"}`)), "", "invalid continue token: continue key is not valid: server does not recognize this encoded version v9"},
		{list("continue=" + token(`{"v":"meta.k8s.io/v1","start":"a"}`)), "", "continue key is not valid: incorrect encoded start resourceVersion (version meta.k8s.io/v1)"},
		{list("continue=" + token(`{"v":"meta.k8s.io/v1","rv":1}`)), "", "continue key is not valid: encoded start key empty (version meta.k8s.io/v1)"},
		{list("resourceVersion=7&continue=" + token(`{"v":"meta.k8s.io/v1","rv":1,"start":"a"}`)), "", "specifying resource version is not allowed when using continue"},
		{list("resourceVersionMatch=Exact"), "ListOptions", "resourceVersionMatch: Forbidden: resourceVersionMatch " +
			"is forbidden unless resourceVersion is provided"},
		{list("resourceVersionMatch=Exact&resourceVersion=0"), "ListOptions", `resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{list("resourceVersionMatch=Some&resourceVersion=1"), "ListOptions", `resourceVersionMatch: Unsupported value: "Some": supported values: "Exact", "NotOlderThan", ""`},
		{list("resourceVersionMatch=Exact&resourceVersion=1&continue=x"), "ListOptions", "resourceVersionMatch: " +
			"Forbidden: resourceVersionMatch is forbidden when continue is provided"},
		{list("sendInitialEvents=false"), "ListOptions", "sendInitialEvents: Forbidden: sendInitialEvents is " +
			"forbidden for list"},
		{watch("sendInitialEvents=true"), "ListOptions", "resourceVersionMatch: Forbidden: sendInitialEvents " +
			"requires setting resourceVersionMatch to NotOlderThan"},
		{watch("sendInitialEvents=true&resourceVersionMatch=Exact&resourceVersion=1"), "ListOptions", `resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan"`},
		{watch("resourceVersionMatch=NotOlderThan"), "ListOptions", "resourceVersionMatch: Forbidden: " +
			"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"},
		{watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&continue=x"), "ListOptions",
			"resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided"},
		{watch("timeoutSeconds=x"), "", number},
		{get("/api/v1/watch/namespaces/o/configmaps?sendInitialEvents=true"), "ListOptions", "sendInitialEvents is " +
			"forbidden for list"},
		{get("%s?resourceVersion=x", one), "", "invalid resource version: "},
		{many("limit=x"), "", number},
		{many("resourceVersionMatch=Exact"), "ListOptions", "resourceVersionMatch is forbidden unless " +
			"resourceVersion is provided"},

		{tried("fieldManager=" + long), "CreateOptions", manager},
		{tried("fieldManager=a%07b"), "CreateOptions", `fieldManager: Invalid value: "a\ab": invalid character U+0007 (at position 1)`},
		{tried("dryRun=Some"), "CreateOptions", `dryRun: Unsupported value: ["All","Some"]: supported values: "All"`},
		{tried("fieldValidation=Some"), "CreateOptions", `fieldValidation: Unsupported value: "Some": supported values: "", "Ignore", "Strict", "Warn"`},
		{post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews?dryRun=Some", "{}"), "CreateOptions",
			"dryRun: Unsupported value"},
		{post("/api/v1/namespaces/o/serviceaccounts/default/token?dryRun=Some", "{}"), "CreateOptions",
			"dryRun: Unsupported value"},
		{post("/api/v1/namespaces/o/pods/p/eviction?fieldManager="+long, "{}"), "CreateOptions", manager},
		{put(one+"?fieldManager="+long, sent), "UpdateOptions", manager},
		{put(one+"?dryRun=", sent), "UpdateOptions", `dryRun: Unsupported value: [""]: supported values: "All"`},
		{merge("force=false"), "PatchOptions", "force: Forbidden: may not be specified for non-apply patch"},
		{merge("fieldManager=" + long), "PatchOptions", manager},
		{apply("force=true"), "PatchOptions", "fieldManager: Required value: is required for apply patch"},
		{apply("fieldManager=m&fieldValidation=some"), "PatchOptions", "fieldValidation: Unsupported value"},

		{gone("gracePeriodSeconds=x"), "", number},
		{gone("gracePeriodSeconds="), "", `strconv.ParseInt: parsing "": invalid syntax`},
		{gone("propagationPolicy="), "DeleteOptions", `propagationPolicy: Unsupported value: "": supported values: "Foreground", "Background", "Orphan", "nil"`},
		{gone("propagationPolicy=Orphan&orphanDependents=true"), "DeleteOptions", `propagationPolicy: Invalid value: "Orphan": orphanDependents and deletionPropagation cannot be both set`},
		{gone("dryRun=Some"), "DeleteOptions", `dryRun: Unsupported value: ["All","Some"]: supported values: "All"`},
		{many("propagationPolicy=Wild"), "DeleteOptions", "propagationPolicy: Unsupported value"},
		{remove(one, `{"kind":"Pod","apiVersion":"v1"}`), "", `no kind "Pod" is registered for version "v1"`},
		{remove(one, `{"gracePeriodSeconds":"x"}`), "", ""},
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
	c.mustRefuse(t, gone("uid=other"), 409, "Conflict",
		"the UID in the precondition (other) does not match the UID in record")
	c.mustRefuse(t, gone("resourceVersion=1"), 409, "Conflict",
		"the ResourceVersion in the precondition (1) does not match the ResourceVersion in record")
	// The type of a patch is checked before its options.
	c.mustRefuse(t,
		call{method: "PATCH", path: one + "?dryRun=Some", body: []byte("{}"), contentType: "application/json"}, 415,
		"UnsupportedMediaType", "")

	for _, r := range []call{
		list("limit=-1"), list("limit=0"), list("timeoutSeconds=-1"),
		list("resourceVersion=0&resourceVersionMatch=NotOlderThan"), list("nothing=known&pretty=x"),
		list("limit=1&resourceVersion=" + stored), get("%s?resourceVersion=0", one),
		merge("dryRun=All&fieldManager=" + long[1:]), apply("fieldManager=m&dryRun=All&force"),
		put(one+"?fieldManager=", sent),
		gone("gracePeriodSeconds=-1"), gone("orphanDependents=false"),
		gone("uid=" + made.textAt("metadata.uid") + "&resourceVersion=" + stored), many("limit=-1"), many("watch=0"),
	} {
		c.mustAnswer(t, 200, r)
	}
	if a := c.mustAnswer(t, 200, list("limit=-1")); len(a.itemList()) < 1 || a.textAt("metadata.continue") != "" {
		t.Errorf("a limit below nothing: %s", a.raw)
	}
	for _, query := range []string{"resourceVersion=x",
		"resourceVersion=x&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
		c.mustRefuse(t, watch(query), 500, "",
			`resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`)
	}
	// A watch with an immediate timeout still begins.
	if w := c.watch(t, watch("timeoutSeconds=-1&labelSelector=nobody")); w.nextEvent() != nil {
		t.Error("a watch without time has an event")
	}
	// If a deletion has options in its body, only those are used.
	c.mustAnswer(t, 200, remove(one+"?propagationPolicy=Wild&gracePeriodSeconds=x",
		`{"apiVersion":"apps/v1","kind":"DeleteOptions","propagationPolicy":"Background"}`))
	c.mustRefuse(t, get("%s", one), 404, "NotFound", "")
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
		t.Errorf("the end of what there is: %v", e)
	}
}
