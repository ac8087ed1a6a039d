package route

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// These are the examples in the Ingress documentation, sections "Path types" and "Hostname wildcards".
func TestPathsAndHostsAreMatchedAsDocumented(t *testing.T) {
	for _, c := range []struct {
		kind, path, request string
		want                bool
	}{
		{"Prefix", "/", "/any/path", true},
		{"Exact", "/foo", "/foo", true},
		{"Exact", "/foo", "/bar", false},
		{"Exact", "/foo", "/foo/", false},
		{"Exact", "/foo/", "/foo", false},
		{"Prefix", "/foo", "/foo", true},
		{"Prefix", "/foo", "/foo/", true},
		{"Prefix", "/foo/", "/foo", true},
		{"Prefix", "/foo/", "/foo/", true},
		{"Prefix", "/aaa/bb", "/aaa/bbb", false},
		{"Prefix", "/aaa/bbb", "/aaa/bbb", true},
		{"Prefix", "/aaa/bbb/", "/aaa/bbb", true},
		{"Prefix", "/aaa/bbb", "/aaa/bbb/", true},
		{"Prefix", "/aaa/bbb", "/aaa/bbb/ccc", true},
		{"Prefix", "/aaa/bbb", "/aaa/bbbxyz", false},
		{"Prefix", "/Foo", "/foo", false},
		{"ImplementationSpecific", "-", "/whatever", true},
		{"ImplementationSpecific", "/foo", "/foo/bar", true},
	} {
		b := newBuilder()
		setIngresses(b, ingressOf("a", 0, "a.example "+c.path+" "+c.kind+" s"))
		if got := serviceFor(b.Table(), "a.example"+c.request) == "s"; got != c.want {
			t.Errorf("%s %s matches %s: %v", c.kind, c.path, c.request, got)
		}
	}
	for _, c := range []struct {
		rule, host string
		want       bool
	}{
		{"*.foo.com", "bar.foo.com", true},
		{"*.foo.com", "baz.bar.foo.com", false},
		{"*.foo.com", "foo.com", false},
		{"foo.com", "foo.com", true},
		{"foo.com", "bar.foo.com", false},
		{"-", "anything", true},
		{"-", "", true},
	} {
		b := newBuilder()
		setIngresses(b, ingressOf("a", 0, c.rule+" / Prefix s"))
		if got := serviceFor(b.Table(), c.host+"/") == "s"; got != c.want {
			t.Errorf("%s matches %s: %v", c.rule, c.host, got)
		}
	}
}

func TestTheMostSpecificRuleWins(t *testing.T) {
	b := newBuilder()
	setIngresses(b, ingressOf("a", 0, "a.example / Prefix root", "a.example /foo Prefix foo",
		"a.example /foo/bar Prefix foobar", "a.example /foo Exact exact", "*.example /wild Prefix wild",
		"*.example /foo/bar/baz Prefix deeper", "- /every Prefix every"))
	checkServices(t, b.Table(), map[string]string{
		"a.example/": "root", "a.example/x": "root", "a.example/foo": "exact", "a.example/foo/": "foo",
		"a.example/foo/x":   "foo",
		"a.example/foo/bar": "foobar", "a.example/foo/bar/baz": "foobar", // the host takes precedence over the path
		"b.example/wild": "wild", "b.example/every": "every", "b.example/": "-", "c.other/every/x": "every",
		"c.other/": "-",
	})
}

func TestDefaultBackendsServeUnmatchedPaths(t *testing.T) {
	b := newBuilder()
	setIngresses(b, ingressOf("a", time.Hour, "a.example /a Prefix a", "- - default rest-of-a"),
		ingressOf("b", 0, "- - default everything"))
	checkServices(t, b.Table(),
		map[string]string{"a.example/a": "a", "a.example/b": "rest-of-a", "b.example/": "everything"})
	b.SetIngress(Key{"default", "b"}, nil)
	checkServices(t, b.Table(), map[string]string{"a.example/b": "rest-of-a", "b.example/": "-"})
}

func TestTheOldestIngressWinsASharedPath(t *testing.T) {
	b := newBuilder()
	young, old := ingressOf("a", time.Minute, "a.example /x Prefix young"), ingressOf("b", time.Hour,
		"a.example /x Prefix old", "a.example /y Prefix other")
	setIngresses(b, young, old)
	checkServices(t, b.Table(), map[string]string{"a.example/x": "old", "a.example/y": "other"})
	b.SetIngress(Key{"default", "b"}, nil)
	checkServices(t, b.Table(), map[string]string{"a.example/x": "young", "a.example/y": "-"})
}

func TestOnlyIngressesOfTheClassAreServed(t *testing.T) {
	plain := func(class *string, annotation string) *networkingv1.Ingress {
		in := ingressOf("a", 0, "a.example / Prefix s")
		in.Spec.IngressClassName = class
		if annotation != "" {
			in.Annotations[classAnnotation] = annotation
		}
		return in
	}
	for name, c := range map[string]struct {
		in        *networkingv1.Ingress
		isDefault bool
		want      string
	}{
		"named":                     {plain(ptr.To("clusterctl"), ""), false, "s"},
		"of another controller":     {plain(ptr.To("nginx"), ""), true, "-"},
		"of a class nobody has":     {plain(ptr.To("none"), ""), true, "-"},
		"named by the annotation":   {plain(nil, "clusterctl"), false, "s"},
		"another by the annotation": {plain(nil, "nginx"), true, "-"},
		"none, and we are default":  {plain(nil, ""), true, "s"},
		"none":                      {plain(nil, ""), false, "-"},
	} {
		b := newBuilder()
		b.SetClass("nginx",
			&networkingv1.IngressClass{Spec: networkingv1.IngressClassSpec{Controller: "k8s.io/ingress-nginx"}})
		setIngresses(b, c.in)
		class := b.classes["clusterctl"].DeepCopy()
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: fmt.Sprint(c.isDefault)}
		b.SetClass("clusterctl", class)
		if got := serviceFor(b.Table(), "a.example/"); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		b.SetClass("clusterctl", nil)
		if got := serviceFor(b.Table(), "a.example/"); got != "-" {
			t.Errorf("%s: %s although the class is gone", name, got)
		}
	}
}

func TestEndpointsAreReadyOnesOrElseServingTerminatingOnes(t *testing.T) {
	web := service("web", corev1.ServicePort{Name: "http", Port: 80}, corev1.ServicePort{Name: "admin", Port: 81},
		corev1.ServicePort{Name: "quic", Port: 80, Protocol: corev1.ProtocolUDP})
	dual := web.DeepCopy()
	dual.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	v6 := sliceOf("http", 8080, "fd00::1")
	for name, c := range map[string]struct {
		service *corev1.Service
		port    string
		slices  []*discoveryv1.EndpointSlice
		want    string
	}{
		"by number": {web, "80",
			[]*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.2", "10.0.0.1")}, "[10.0.0.1:8080 " +
				"10.0.0.2:8080]"},
		"by name": {web, "admin",
			[]*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.1"), sliceOf("admin", 9000, "10.0.0.1")},
			"[10.0.0.1:9000]"},
		"no such port": {web, "82", []*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.1")}, "[]"},
		"a port of UDP": {web, "quic", []*discoveryv1.EndpointSlice{sliceOf("quic", 8080, "10.0.0.1")},
			"[]"},
		"one not ready": {web, "80",
			[]*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.1!", "10.0.0.2", "10.0.0.3~")},
			"[10.0.0.2:8080]"},
		"none ready": {web, "80",
			[]*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.1!", "10.0.0.3~")}, "[10.0.0.3:8080]"},
		"the same in two slices": {web, "80",
			[]*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.1"), sliceOf("http", 8080, "10.0.0.1")},
			"[10.0.0.1:8080]"},
		"two families, four first": {web, "80", []*discoveryv1.EndpointSlice{v6, sliceOf("http", 8080, "10.0.0.1")},
			"[10.0.0.1:8080]"},
		"two families, six first": {dual, "80", []*discoveryv1.EndpointSlice{v6, sliceOf("http", 8080, "10.0.0.1")},
			"[[fd00::1]:8080]"},
		"six alone":  {web, "80", []*discoveryv1.EndpointSlice{v6}, "[[fd00::1]:8080]"},
		"no service": {nil, "80", []*discoveryv1.EndpointSlice{v6}, "[]"},
	} {
		if got := fmt.Sprint(Endpoints(c.service, c.slices, c.port)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestEndpointChangesNeedNoNewTable(t *testing.T) {
	b := newBuilder()
	setIngresses(b, ingressOf("a", 0, "a.example / Prefix web:http"))
	table := b.Table()
	b.SetService(Key{"default", "web"}, service("web", corev1.ServicePort{Name: "http", Port: 80}))
	b.SetSlices(Key{"default", "web"}, []*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.1")})
	backend := table.Find([]byte("a.example"), []byte("/"), testRequest{}).Backends[0].Backend
	at := backend.Targets.(*recordedTargets)
	if got := fmt.Sprint(at.list); got != "[10.0.0.1:8080]" || b.Table() != table {
		t.Errorf("%s; the table is the same: %v", got, b.Table() == table)
	}
	// A changed Ingress keeps its previous backends.
	setIngresses(b, ingressOf("a", 0, "a.example /new Prefix web:http"))
	if now := b.Table().Find([]byte("a.example"), []byte("/new"), testRequest{}).Backends[0].Backend; now != backend ||
		at.closed {
		t.Error("the backend was created again")
	}
	b.SetIngress(Key{"default", "a"}, nil)
	if b.Table(); !at.closed || len(b.Backends.backends) != 0 || len(b.claims) != 0 || len(b.Backends.byService) != 0 {
		t.Error("an unused backend still exists")
	}
}

func TestCertificatesAreSelectedByServerName(t *testing.T) {
	b := newBuilder()
	exact, wild, rest := secretOf(t, "a.example"), secretOf(t, "*.example"), secretOf(t, "other.example", "own.example")
	for name, s := range map[string]*corev1.Secret{"exact": exact, "wild": wild, "rest": rest} {
		b.SetSecret(Key{"default", name}, s)
	}
	first, second := ingressOf("a", time.Hour, "a.example / Prefix s"), ingressOf("b", 0, "a.example / Prefix s",
		"own.example / Prefix s")
	first.Spec.TLS = []networkingv1.IngressTLS{
		{Hosts: []string{"A.example"}, SecretName: "exact"},
		{Hosts: []string{"*.example"}, SecretName: "wild"},
	}
	second.Spec.TLS = []networkingv1.IngressTLS{
		{Hosts: []string{"a.example"}, SecretName: "rest"},
		{SecretName: "rest"},
	}
	setIngresses(b, first, second)
	shown := func(name string) string {
		cert := b.Table().Certificate(name)
		if cert == nil {
			return "-"
		}
		return cert.Leaf.DNSNames[0]
	}
	for name, want := range map[string]string{
		"a.example": "a.example", "A.EXAMPLE": "a.example", "b.example": "*.example", "x.b.example": "-",
		"own.example": "other.example", "": "-",
	} {
		if got := shown(name); got != want {
			t.Errorf("%q is shown the certificate of %s, want %s", name, got, want)
		}
	}
	b.SetSecret(Key{"default", "exact"}, secretOf(t, "new.example"))
	if got := shown("a.example"); got != "new.example" {
		t.Errorf("a certificate that was changed is not shown: %s", got)
	}
	b.SetSecret(Key{"default", "exact"}, nil)
	if got := shown("a.example"); got != "other.example" {
		t.Errorf("the younger Ingress' certificate is not shown when the older one has none: %s", got)
	}
	if got := b.Problems(Key{"default", "a"}); len(got) != 1 || got[0].Reason != "NoCertificate" {
		t.Errorf("problems: %v", got)
	}
}

func TestPlaintextRequestsAreRedirectedIfTheIngressHasTLS(t *testing.T) {
	for name, c := range map[string]struct {
		hosts       []string
		annotations map[string]string
		want        bool
	}{
		"no TLS":            {nil, nil, false},
		"TLS for the host":  {[]string{"a.example"}, nil, true},
		"TLS by a wildcard": {[]string{"*.example"}, nil, true},
		"TLS for another":   {[]string{"b.example"}, nil, false},
		"TLS for all":       {[]string{}, nil, true},
		"turned off":        {[]string{"a.example"}, map[string]string{nginxPrefix + "ssl-redirect": "false"}, false},
		"forced":            {nil, map[string]string{projectPrefix + "force-ssl-redirect": "true"}, true},
		"ours counts before": {[]string{"a.example"},
			map[string]string{nginxPrefix + "ssl-redirect": "true", projectPrefix + "ssl-redirect": "false"}, false},
	} {
		b := newBuilder()
		in := ingressOf("a", 0, "a.example / Prefix s")
		if c.hosts != nil {
			in.Spec.TLS = []networkingv1.IngressTLS{{Hosts: c.hosts}}
		}
		in.Annotations = c.annotations
		setIngresses(b, in)
		if got := b.Table().Find([]byte("a.example"), []byte("/"), testRequest{}).ToHTTPS; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestAnnotationsAreAppliedOrReported(t *testing.T) {
	usual := Policy{Connect: time.Second, Protocol: HTTP, RedirectTLS: true}
	for name, c := range map[string]struct {
		value  string
		change func(*Policy)
		reason string
	}{
		"proxy-connect-timeout": {"7", func(p *Policy) { p.Connect = 7 * time.Second }, ""},
		"proxy-read-timeout":    {"1m", func(p *Policy) { p.Read = time.Minute }, ""},
		"proxy-send-timeout":    {"0", nil, "InvalidAnnotation"},
		"proxy-body-size":       {"8m", func(p *Policy) { p.MaxBody = 8 << 20 }, ""},
		"backend-protocol":      {"grpcs", func(p *Policy) { p.Protocol = GRPCS }, ""},
		"rewrite-target":        {"/new", func(p *Policy) { p.Rewrite = "/new" }, ""},
		"ssl-redirect":          {"perhaps", nil, "InvalidAnnotation"},
		"use-regex":             {"true", nil, "InvalidAnnotation"},
		"proxy-buffering":       {"off", nil, ""},
		"auth-url":              {"http://auth", nil, "UnsupportedAnnotation"},
	} {
		want := usual
		if c.change != nil {
			c.change(&want)
		}
		got, problems := policyOf(map[string]string{nginxPrefix + name: c.value, "other/" + name: "x"}, usual)
		reason := ""
		if len(problems) > 0 {
			reason = problems[0].Reason
		}
		if got != want || reason != c.reason {
			t.Errorf("%s=%s: %+v, %v", name, c.value, got, problems)
		}
	}
	if _, problems := policyOf(map[string]string{projectPrefix + "rewrite-target": "/$2"}, usual); len(problems) != 1 {
		t.Error("groups of a regular expression are not refused")
	}
}

func TestMissingBackendsAreReported(t *testing.T) {
	b := newBuilder()
	in := ingressOf("a", 0, "a.example / Prefix web")
	in.Spec.DefaultBackend = &networkingv1.IngressBackend{
		Resource: &corev1.TypedLocalObjectReference{Kind: "Bucket", Name: "x"},
	}
	setIngresses(b, in)
	b.SetService(
		Key{"default", "web"},
		&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName},
		},
	)
	if got := fmt.Sprint(b.Problems(Key{"default", "a"})); !strings.Contains(got, "Bucket x") ||
		!strings.Contains(got, "ExternalName") {
		t.Error(got)
	}
}

// Routes of the Gateway API can match more than hosts and paths.
func TestRulesOfOnePathAreTriedBySpecificity(t *testing.T) {
	rules := []*Rule{}
	for _, r := range []*Rule{
		{Path: "any"}, {Path: "header", Match: Match{Headers: []Pair{{"x", "1"}}}},
		{Path: "query", Match: Match{Query: []Pair{{"q", "1"}}}},
		{Path: "method", Match: Match{Method: "POST"}}, {Path: "younger"},
	} {
		rules = insertRule(rules, r)
	}
	for want, r := range map[string]testRequest{
		"any": {method: "GET"}, "method": {method: "POST", headers: map[string]string{"x": "1"}},
		"header": {headers: map[string]string{"x": "1"}, query: map[string]string{"q": "1"}},
		"query":  {query: map[string]string{"q": "1"}},
	} {
		if got := firstMatch(rules, r).Path; got != want {
			t.Errorf("%+v: %s, want %s", r, got, want)
		}
	}
}

// BenchmarkChange measures a change of an endpoint or an Ingress among 5,000.
func BenchmarkChange(b *testing.B) {
	build := newBuilder()
	for i := range 5000 {
		in := ingressOf(fmt.Sprint("i", i), 0, fmt.Sprintf("h%d.example / Prefix s%d:http", i, i),
			fmt.Sprintf("h%d.example /api Prefix s%d:http", i, i))
		setIngresses(build, in)
		build.SetService(Key{"default", fmt.Sprint("s", i)}, service(fmt.Sprint("s", i),
			corev1.ServicePort{Name: "http", Port: 80}))
	}
	build.Table()
	b.Run("endpoint", func(b *testing.B) {
		all := []*discoveryv1.EndpointSlice{sliceOf("http", 8080, "10.0.0.1", "10.0.0.2", "10.0.0.3")}
		for b.Loop() {
			build.SetSlices(Key{"default", "s7"}, all)
			build.Table()
		}
	})
	b.Run("ingress", func(b *testing.B) {
		in := ingressOf("i7", 0, "h7.example / Prefix s7:http")
		for b.Loop() {
			setIngresses(build, in)
			build.Table()
		}
	})
	b.Run("find", func(b *testing.B) {
		t, host, path := build.Table(), []byte("h4711.example"), []byte("/api/v1/things/4")
		b.ReportAllocs()
		for b.Loop() {
			t.Find(host, path, testRequest{})
		}
	})
}
