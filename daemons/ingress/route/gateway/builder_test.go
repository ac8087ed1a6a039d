package gateway

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/ingress/route"
)

type fakeTargets struct{ closed bool }

func (t *fakeTargets) Update([]netip.AddrPort) {}
func (t *fakeTargets) Close()                  { t.closed = true }

type testRequest struct{ method string }

func (r testRequest) Method() string                 { return r.method }
func (testRequest) Header(string) (string, bool)     { return "", false }
func (testRequest) Query(name string) (string, bool) { return "", false }

// newTestBuilder returns a Builder with a class, two namespaces and the services web and, in namespace other, far.
func newTestBuilder(shared map[int]bool) *Builder {
	backends := route.NewBackends(func(route.BackendKey) route.Targets { return &fakeTargets{} })
	for _, key := range []route.Key{{Namespace: "shop", Name: "web"}, {Namespace: "other", Name: "far"}} {
		backends.SetService(
			key,
			&corev1.Service{
				Spec: corev1.ServiceSpec{
					Ports: []corev1.ServicePort{{Port: 80}, {Port: 81, AppProtocol: ptr.To("kubernetes.io/wss")}},
				},
			},
		)
	}
	b := NewBuilder(
		Options{
			Backends: backends,
			Shared:   shared,
			Policy:   route.Policy{Read: time.Minute},
			Certificate: func(key route.Key) (*tls.Certificate, error) {
				if key.Name == "good" {
					return &tls.Certificate{}, nil
				}
				return nil, errors.New("there is no secret " + key.Name)
			},
		},
	)
	b.SetClass(
		"c",
		&gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: "c"},
			Spec:       gatewayv1.GatewayClassSpec{ControllerName: Controller},
		},
	)
	b.SetNamespace("shop", map[string]string{"team": "a"})
	b.SetNamespace("other", map[string]string{})
	return b
}

// addGateway adds a Gateway with listeners, each in one line of YAML.
func addGateway(t *testing.T, b *Builder, name string, age int, listeners ...string) {
	t.Helper()
	g := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         "shop",
			Name:              name,
			UID:               "1",
			Generation:        int64(100 - age),
			CreationTimestamp: metav1.Unix(int64(1000-age), 0),
		},
	}
	if err := yaml.UnmarshalStrict([]byte("gatewayClassName: c\nlisteners:\n- "+strings.Join(listeners, "\n- ")),
		&g.Spec); err != nil {
		t.Fatal(err)
	}
	b.SetGateway(route.Key{Namespace: "shop", Name: name}, g)
}

func addRoute(t *testing.T, b *Builder, name string, generation int64, spec string) {
	t.Helper()
	namespace, name, _ := strings.Cut(name, "/")
	r := &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         namespace,
			Name:              name,
			UID:               "1",
			Generation:        generation,
			CreationTimestamp: metav1.Unix(1000, 0),
		},
	}
	if err := yaml.UnmarshalStrict([]byte(spec), &r.Spec); err != nil {
		t.Fatal(err)
	}
	b.SetRoute(route.Key{Namespace: namespace, Name: name}, r)
}

// conditionText returns a condition in the form "True/Reason".
func conditionText(list []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(list, kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + "/" + c.Reason
}

var testLocation = Location{
	Addresses: []gatewayv1.GatewayStatusAddress{{Value: "10.0.0.1"}},
	OpenError: func(Entry) error { return nil },
}

// Proves S32.
func TestRouteStatusReportsAttachments(t *testing.T) {
	const web = `, rules: [{backendRefs: [{name: web, port: 80}]}]}`
	for _, c := range []struct{ listener, name, spec, accepted, resolved string }{
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: " +
			"g}]" + web, "True/Accepted", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g, sectionName: " +
			"x}]" + web, "False/NoMatchingParent", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g, port: " +
			"81}]" + web, "False/NoMatchingParent", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP, hostname: a.example}", "shop/r", "{parentRefs: [{name: g}], hostnames: " +
			"[b.example]" + web, "False/NoMatchingListenerHostname", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP, hostname: '*.example'}", "shop/r", "{parentRefs: [{name: g}], " +
			"hostnames: [x.b.example]" + web, "True/Accepted", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP}", "other/r", "{parentRefs: [{name: g, namespace: shop}], rules: " +
			"[]}", "False/NotAllowedByListeners", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: " +
			"All}}}", "other/r", "{parentRefs: [{name: g, namespace: shop}], rules: " +
			"[]}", "True/Accepted", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: " +
			"{team: a}}}}}", "other/r", "{parentRefs: [{name: g, namespace: " +
			"shop}]}", "False/NotAllowedByListeners", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: " +
			"GRPCRoute}]}}", "shop/r", "{parentRefs: [{name: g}]}", "False/NotAllowedByListeners", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: " +
			"gone, port: 80}]}]}", "True/Accepted", "False/BackendNotFound"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: " +
			"web, port: 99}]}]}", "True/Accepted", "False/BackendNotFound"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: " +
			"web, port: 81}]}]}", "True/Accepted", "False/UnsupportedProtocol"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: " +
			"x, kind: Bucket}]}]}", "True/Accepted", "False/InvalidKind"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: " +
			"far, namespace: other, port: 80}]}]}", "True/Accepted", "False/RefNotPermitted"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{matches: [{path: " +
			"{type: RegularExpression, value: /x}}]}]}", "False/UnsupportedValue", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{filters: [{type: " +
			"RequestMirror, requestMirror: {backendRef: {name: web, port: " +
			"80}}}]}]}", "False/UnsupportedValue", "True/ResolvedRefs"},
		{"{name: l, port: 80, protocol: HTTP}", "shop/r", "{parentRefs: [{name: g}], rules: [{filters: [{type: " +
			"RequestRedirect, requestRedirect: {}}, {type: URLRewrite, urlRewrite: " +
			"{}}]}]}", "False/IncompatibleFilters", "True/ResolvedRefs"},
	} {
		b := newTestBuilder(nil)
		addGateway(t, b, "g", 0, c.listener)
		addRoute(t, b, c.name, 7, c.spec)
		b.Update()
		namespace, name, _ := strings.Cut(c.name, "/")
		parents := b.RouteStatus(route.Key{Namespace: namespace, Name: name}).Parents
		if len(parents) != 1 {
			t.Errorf("%s %s: %d parents", c.listener, c.spec, len(parents))
			continue
		}
		if a, r := conditionText(parents[0].Conditions, "Accepted"),
			conditionText(parents[0].Conditions, "ResolvedRefs"); a != c.accepted ||
			r != c.resolved {
			t.Errorf("%s %s: %s %s, want %s %s", c.listener, c.spec, a, r, c.accepted, c.resolved)
		}
		if g := parents[0].Conditions[0].ObservedGeneration; g != 7 {
			t.Errorf("%s: generation %d", c.spec, g)
		}
		attached := b.GatewayStatus(route.Key{Namespace: "shop", Name: "g"}, testLocation).Listeners[0].AttachedRoutes
		if (attached == 1) != strings.HasPrefix(c.accepted, "True") {
			t.Errorf("%s %s: %d routes are attached", c.listener, c.spec, attached)
		}
	}
}

// A user who may write routes cannot inject data into a connection that would be mistaken for other clients' requests
// or responses.
func TestFiltersThatChangeMessageFramingAreRejected(t *testing.T) {
	for filter, ok := range map[string]bool{
		`{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Shop, value: "a b"}], add: [{name: x-more, value: c}], remove: [x-gone]}}`: true,
		`{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /y}}}`:                                                     true,
		`{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: ""}}}`:                                                     true,
		`{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X, value: "a\r\nContent-Length: 9"}]}}`:                                      false,
		`{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: X, value: "a\nb"}]}}`:                                                        false,
		`{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: "X: a\r\nY", value: b}]}}`:                                                   false,
		`{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: content-LENGTH, value: "9"}]}}`:                                              false,
		`{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Content_Length, value: "9"}]}}`:                                              false,
		`{type: RequestHeaderModifier, requestHeaderModifier: {remove: [Content-Length]}}`:                                                               false,
		`{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: Transfer-Encoding, value: chunked}]}}`:                                       false,
		`{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Host, value: b.example}]}}`:                                                  false,
		`{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: Content-Length, value: "0"}]}}`:                                            false,
		`{type: ResponseHeaderModifier, responseHeaderModifier: {add: [{name: Connection, value: keep-alive}]}}`:                                         false,
		`{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: "/ HTTP/1.1\r\nX: y"}}}`:                                         false,
		`{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: "/a b"}}}`:                                                 false,
		`{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: "/\r\nSet-Cookie: a=b"}}}`:                             false,
	} {
		for place, spec := range map[string]string{
			"rule": "{parentRefs: [{name: g}], rules: [{filters: [" + filter + "], backendRefs: [{name: web, " +
				"port: 80}]}]}",
			"backend": "{parentRefs: [{name: g}], rules: [{backendRefs: [{name: web, port: 80, filters: " +
				"[" + filter + "]}]}]}",
		} {
			if place == "backend" && !strings.Contains(filter, "HeaderModifier") {
				continue
			}
			b := newTestBuilder(nil)
			addGateway(t, b, "g", 0, "{name: l, port: 80, protocol: HTTP}")
			addRoute(t, b, "shop/r", 1, spec)
			b.Update()
			want := map[bool]string{true: "True/Accepted", false: "False/UnsupportedValue"}[ok]
			if got := conditionText(b.RouteStatus(route.Key{Namespace: "shop", Name: "r"}).Parents[0].Conditions,
				"Accepted"); got != want {
				t.Errorf("%s at a %s: %s, want %s", filter, place, got, want)
			}
		}
	}
}

// Proves S32.
func TestListenerStatusReportsWhetherItIsServed(t *testing.T) {
	for _, c := range []struct {
		listeners []string
		// want is, of the first listener, Accepted Conflicted ResolvedRefs Programmed, then Accepted of the Gateway.
		want string
	}{
		{[]string{"{name: l, port: 80, protocol: HTTP}"}, "True/Accepted False/NoConflicts True/ResolvedRefs " +
			"True/Programmed True/Accepted"},
		{[]string{"{name: l, port: 80, protocol: TCP}"}, "False/UnsupportedProtocol False/NoConflicts " +
			"True/ResolvedRefs False/Invalid False/ListenersNotValid"},
		{[]string{"{name: l, port: 80, protocol: TCP}", "{name: m, port: 80, protocol: " +
			"HTTP}"}, "False/UnsupportedProtocol False/NoConflicts True/ResolvedRefs False/Invalid " +
			"True/ListenersNotValid"},
		{[]string{"{name: l, port: 80, protocol: HTTP}", "{name: m, port: 80, protocol: " +
			"HTTP}"}, "False/HostnameConflict True/HostnameConflict True/ResolvedRefs False/Invalid " +
			"False/ListenersNotValid"},
		{[]string{"{name: l, port: 80, protocol: HTTP, hostname: a.example}", "{name: m, port: 80, protocol: " +
			"HTTP}"}, "True/Accepted False/NoConflicts True/ResolvedRefs True/Programmed True/Accepted"},
		{[]string{"{name: l, port: 443, protocol: HTTP}", "{name: m, port: 443, protocol: HTTPS, tls: " +
			"{certificateRefs: [{name: good}]}}"}, "False/ProtocolConflict True/ProtocolConflict True/ResolvedRefs " +
			"False/Invalid False/ListenersNotValid"},
		{[]string{"{name: l, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: " +
			"good}]}}"}, "True/Accepted False/NoConflicts True/ResolvedRefs True/Programmed True/Accepted"},
		{[]string{"{name: l, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: " +
			"bad}]}}"}, "True/Accepted False/NoConflicts False/InvalidCertificateRef False/Invalid True/Accepted"},
		{[]string{"{name: l, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: good, namespace: " +
			"other}]}}"}, "True/Accepted False/NoConflicts False/RefNotPermitted False/Invalid True/Accepted"},
		{[]string{"{name: l, port: 443, protocol: HTTPS, tls: {mode: " +
			"Passthrough}}"}, "False/UnsupportedValue False/NoConflicts False/InvalidCertificateRef False/Invalid " +
			"False/ListenersNotValid"},
		{[]string{"{name: l, port: 80, protocol: HTTP, allowedRoutes: {kinds: [{kind: " +
			"UDPRoute}]}}"}, "True/Accepted False/NoConflicts False/InvalidRouteKinds True/Programmed True/Accepted"},
	} {
		b := newTestBuilder(nil)
		addGateway(t, b, "g", 0, c.listeners...)
		b.Update()
		s := b.GatewayStatus(route.Key{Namespace: "shop", Name: "g"}, testLocation)
		l := s.Listeners[0].Conditions
		got := strings.Join(
			[]string{
				conditionText(l, "Accepted"),
				conditionText(l, "Conflicted"),
				conditionText(l, "ResolvedRefs"),
				conditionText(l, "Programmed"),
				conditionText(s.Conditions, "Accepted"),
			},
			" ",
		)
		if got != c.want {
			t.Errorf("%v:\n%s, want\n%s", c.listeners, got, c.want)
		}
	}
}

// A changed route only rebuilds the rules of its hosts.
// Proves S32.
func TestOnlyChangedEntriesAreRebuilt(t *testing.T) {
	b := newTestBuilder(nil)
	addGateway(t, b, "g", 0, "{name: l, port: 80, protocol: HTTP}", "{name: m, port: 81, protocol: HTTP}")
	addGateway(t, b, "h", 0, "{name: l, port: 80, protocol: HTTP}")
	spec := "{parentRefs: [{name: %s}], hostnames: [%s], rules: [{matches: [{path: {value: %s}}], backendRefs: " +
		"[{name: web, port: 80}]}]}"
	addRoute(t, b, "shop/a", 1, fmt.Sprintf(spec, "g, sectionName: l", "a.example", "/"))
	addRoute(t, b, "shop/b", 1, fmt.Sprintf(spec, "g, sectionName: l", "b.example", "/"))
	addRoute(t, b, "shop/h", 1, fmt.Sprintf(spec, "h", "h.example", "/"))
	if n := len(b.Update()); n != 3 {
		t.Fatalf("%d entries are new, not 3", n)
	}
	at := Entry{Gateway: route.Key{Namespace: "shop", Name: "g"}, Port: 80}
	find := func(s *Served, host, path string) *route.Rule {
		return (&route.Table{}).WithListeners(s.Listeners).Find([]byte(host), []byte(path), testRequest{})
	}
	before := b.served[at]
	kept := find(before, "b.example", "/")
	addRoute(t, b, "shop/a", 2, fmt.Sprintf(spec, "g, sectionName: l", "a.example", "/new"))
	news := b.Update()
	if len(news) != 1 || news[at] == nil {
		t.Fatalf("entries that changed: %v", news)
	}
	if find(news[at], "b.example", "/") != kept {
		t.Error("the rules of another host were rebuilt")
	}
	if find(news[at], "a.example", "/") != nil || find(news[at], "a.example", "/new/x") == nil {
		t.Error("the route's own rules are those of before")
	}
	if find(before, "a.example", "/") == nil {
		t.Error("a table that was given away has changed")
	}
	// Only its status has changed.
	addRoute(t, b, "shop/a", 2, fmt.Sprintf(spec, "g, sectionName: l", "a.example", "/new"))
	if news := b.Update(); len(news) != 0 {
		t.Errorf("entries that changed with a status: %v", news)
	}
	b.SetRoute(route.Key{Namespace: "shop", Name: "b"}, nil)
	if news := b.Update(); find(news[at], "b.example", "/") != nil {
		t.Error("a route that is gone is served")
	}
	b.SetGateway(at.Gateway, nil)
	if news := b.Update(); len(news) != 2 || news[at] != nil {
		t.Errorf("a Gateway is gone, and its entries are %v", news)
	}
}

// If Gateways share the machines' addresses, the older one gets a conflicting listener until it is removed.
// Proves S32.
func TestGatewaysShareMachinePorts(t *testing.T) {
	b := newTestBuilder(map[int]bool{80: false, 443: true})
	addGateway(t, b, "old", 9, "{name: l, port: 80, protocol: HTTP, hostname: a.example}")
	addGateway(t, b, "new", 1, "{name: l, port: 80, protocol: HTTP, hostname: a.example}",
		"{name: m, port: 80, protocol: HTTP, hostname: b.example}", "{name: n, port: 8080, protocol: HTTP}")
	status := func(i int) string {
		return conditionText(
			b.GatewayStatus(route.Key{Namespace: "shop", Name: "new"}, testLocation).Listeners[i].Conditions,
			"Accepted",
		)
	}
	if news := b.Update(); len(news) != 1 || len(news[Entry{Port: 80}].Listeners) != 2 {
		t.Errorf("entries: %v", news)
	}
	if got := status(0) + " " + status(1) + " " + status(2); got != "False/HostnameConflict True/Accepted "+
		"False/PortUnavailable" {
		t.Error(got)
	}
	b.SetGateway(route.Key{Namespace: "shop", Name: "old"}, nil)
	if b.Update(); status(0) != "True/Accepted" {
		t.Error(status(0))
	}
}

// Proves S32.
func TestReferenceGrantsAllowServicesOfOtherNamespaces(t *testing.T) {
	b := newTestBuilder(nil)
	addGateway(t, b, "g", 0, "{name: l, port: 80, protocol: HTTP}")
	addRoute(t, b, "shop/r", 1,
		"{parentRefs: [{name: g}], rules: [{backendRefs: [{name: far, namespace: other, port: 80}]}]}")
	resolved := func() string {
		b.Update()
		return conditionText(b.RouteStatus(route.Key{Namespace: "shop", Name: "r"}).Parents[0].Conditions,
			"ResolvedRefs")
	}
	if got := resolved(); got != "False/RefNotPermitted" {
		t.Error(got)
	}
	grant := &gatewayv1.ReferenceGrant{Spec: gatewayv1.ReferenceGrantSpec{
		From: []gatewayv1.ReferenceGrantFrom{
			{Group: gatewayv1.GroupName, Kind: "HTTPRoute", Namespace: "shop"},
		}, To: []gatewayv1.ReferenceGrantTo{{Kind: "Service", Name: ptr.To(gatewayv1.ObjectName("far"))}},
	}}
	b.SetGrant(route.Key{Namespace: "other", Name: "x"}, grant)
	if got := resolved(); got != "True/ResolvedRefs" {
		t.Error(got)
	}
	b.SetGrant(route.Key{Namespace: "other", Name: "x"}, nil)
	if got := resolved(); got != "False/RefNotPermitted" {
		t.Error(got)
	}
}
