package conformance

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"clusterctl/certs"
)

// Lists respect each way to specify a version, as the API concepts describe it.
// Proves S11.
func TestReadsRespectResourceVersions(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "versions")
	const path = "/api/v1/namespaces/versions/configmaps"
	make := func(name string) answer {
		return c.mustAnswer(t, 201, post(path, object{"metadata": object{"name": name}}))
	}
	a := make("a").textAt("metadata.resourceVersion")
	b := make("b").textAt("metadata.resourceVersion")
	c.mustAnswer(t, 200, remove(path+"/a", nil))
	last := make("z").textAt("metadata.resourceVersion")

	for _, q := range []struct {
		query string
		want  []string
		exact string // the version of the list; empty: any
	}{
		{"", []string{"b", "z"}, ""},
		{"resourceVersion=" + last, []string{"b", "z"}, ""},
		{"resourceVersion=" + last + "&resourceVersionMatch=NotOlderThan", []string{"b", "z"}, ""},
		{"resourceVersion=" + a + "&resourceVersionMatch=Exact", []string{"a"}, a},
		{"resourceVersion=" + b + "&resourceVersionMatch=Exact", []string{"a", "b"}, b},
		{"resourceVersion=" + b + "&resourceVersionMatch=Exact&limit=1", []string{"a"}, b},
		{"resourceVersion=" + last + "&limit=500", []string{"b", "z"}, ""},
	} {
		list := c.mustAnswer(t, 200, get("%s?%s", path, q.query))
		if got := objectNames(list.itemList()); !slices.Equal(got, q.want) {
			t.Errorf("%q: %v, want %v", q.query, got, q.want)
		}
		if v := list.textAt("metadata.resourceVersion"); q.exact != "" && v != q.exact {
			t.Errorf("%q: version %s, want %s", q.query, v, q.exact)
		}
	}
	c.mustAnswer(t, 200, get("%s?resourceVersion=0", path))
	c.mustAnswer(t, 200, get("%s?resourceVersion=0&resourceVersionMatch=NotOlderThan", path))

	for query, want := range map[string]struct {
		code            int
		reason, message string
	}{
		"resourceVersionMatch=NotOlderThan": {422, "Invalid", "resourceVersionMatch is " +
			"forbidden unless resourceVersion is provided"},
		"resourceVersion=0&resourceVersionMatch=Exact": {422, "Invalid", `resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		"resourceVersion=1&resourceVersionMatch=Wild":  {422, "Invalid", `supported values: "Exact", "NotOlderThan", ""`},
		"resourceVersion=9000000000":                   {504, "Timeout", "Too large resource version"},
		"resourceVersion=-1":                           {400, "BadRequest", ""},
		"resourceVersion=x":                            {400, "BadRequest", ""},
		"sendInitialEvents=true": {422, "Invalid", "sendInitialEvents is forbidden " +
			"for list"},
		"watch=1&resourceVersionMatch=Exact&sendInitialEvents=1": {422, "Invalid", "sendInitialEvents requires " +
			"setting resourceVersionMatch to NotOlderThan"},
		"watch=1&timeoutSeconds=x": {400, "BadRequest", ""},
	} {
		c.mustRefuse(t, get("%s?%s", path, query), want.code, want.reason, want.message)
	}
}

// A list at a compacted version gets an error, and can continue with the present state. A server that was started after
// that version does not know it.
// Proves S11.
func TestCompactedRevisionsAreExpired(t *testing.T) {
	st := openStore(t)
	first := startServer(t, st)
	c := first.clientFor(t, certs.Admin())
	c.createNamespace(t, "expired")
	const path = "/api/v1/namespaces/expired/configmaps"
	for i := range 3 {
		c.mustAnswer(t, 201, post(path, object{"metadata": object{"name": fmt.Sprintf("c%d", i)}}))
	}
	page := c.mustAnswer(t, 200, get("%s?limit=1", path))
	version, token := page.textAt("metadata.resourceVersion"), page.textAt("metadata.continue")
	later, err := strconv.ParseInt(
		c.mustAnswer(t, 201, post(path,
			object{"metadata": object{"name": "later"}})).textAt("metadata.resourceVersion"),
		10,
		64,
	)
	if err != nil {
		t.Fatal(err)
	}
	first.stop()
	// Another server can continue the list until etcd is compacted.
	second := startServer(t, st)
	c = second.clientFor(t, certs.Admin())
	if got := objectNames(c.mustAnswer(t, 200,
		get("%s?limit=1&continue=%s", path, url.QueryEscape(token))).itemList()); !slices.Equal(got, []string{"c1"}) {
		t.Errorf("another server uses %v", got)
	}
	second.stop()
	if err := st.Compact(t.Context(), later); err != nil {
		t.Fatal(err)
	}
	c = startServer(t, st).clientFor(t, certs.Admin())
	gone := c.mustRefuse(t, get("%s?limit=1&continue=%s", path, url.QueryEscape(token)), 410, "Expired",
		"The provided continue parameter is too old to display a consistent list result")
	next := gone.textAt("metadata.continue")
	if next == "" {
		t.Fatalf("no token to go on with: %s", gone.raw)
	}
	rest := c.mustAnswer(t, 200, get("%s?continue=%s", path, url.QueryEscape(next)))
	if got := objectNames(rest.itemList()); !slices.Equal(got, []string{"c1", "c2", "later"}) {
		t.Errorf("the rest is %v", got)
	}
	c.mustRefuse(t, get("%s?resourceVersion=%s&resourceVersionMatch=Exact", path, version), 410, "Expired",
		"too old resource version")
	c.mustRefuse(t, get("%s?watch=1&resourceVersion=%s", path, version), 410, "Expired", "too old resource version")
	c.mustAnswer(t, 200, get("%s?resourceVersion=%s&resourceVersionMatch=NotOlderThan", path, version))
}

// Remaining items are counted without a selector, and not with one.
// Proves S11.
func TestPagesReportTheRemainingItemCount(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "pages")
	const path = "/api/v1/namespaces/pages/configmaps"
	for i := range 5 {
		c.mustAnswer(t, 201, post(path,
			object{"metadata": object{"name": fmt.Sprintf("c%d", i), "labels": object{"a": "b"}}}))
	}
	if page := c.mustAnswer(t, 200, get("%s?limit=2", path)); page.valueAt("metadata.remainingItemCount") != 3.0 {
		t.Errorf("first page: %v", page.valueAt("metadata"))
	}
	if page := c.mustAnswer(t, 200,
		get("%s?limit=2&labelSelector=a", path)); page.valueAt("metadata.remainingItemCount") != nil ||
		page.textAt("metadata.continue") == "" {
		t.Errorf("first page of what is selected: %v", page.valueAt("metadata"))
	}
	table := c.mustAnswer(t, 200, get("%s?limit=2", path).withAccept(tableType))
	if table.textAt("metadata.continue") == "" || table.valueAt("metadata.remainingItemCount") != 3.0 {
		t.Errorf("a table's page: %v", table.valueAt("metadata"))
	}
}

// Lists above a size are compressed for clients that accept it.
// Proves S11.
func TestLargeAnswersAreCompressed(t *testing.T) {
	c := sharedClient(t)
	c.createNamespace(t, "large")
	const path = "/api/v1/namespaces/large/configmaps"
	for i := range 3 {
		c.mustAnswer(
			t,
			201,
			post(
				path,
				object{
					"metadata": object{"name": fmt.Sprintf("c%d", i)},
					"data":     object{"a": strings.Repeat("abc", 50000)},
				},
			),
		)
	}
	zipped := get("%s", path)
	zipped.header = map[string][]string{"Accept-Encoding": {"gzip"}}
	a := c.mustAnswer(t, 200, zipped)
	if a.header.Get("Content-Encoding") != "gzip" || len(a.raw) > 100<<10 ||
		!strings.Contains(strings.Join(a.header.Values("Vary"), ","), "Accept-Encoding") {
		t.Errorf("%d bytes, encoding %q", len(a.raw), a.header.Get("Content-Encoding"))
	}
	if b := c.mustAnswer(t, 200, get("%s", path)); b.header.Get("Content-Encoding") != "" || len(b.itemList()) != 3 {
		t.Errorf("asked for plain, and got %q", b.header.Get("Content-Encoding"))
	}
}
