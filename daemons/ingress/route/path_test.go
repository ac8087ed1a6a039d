package route

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
)

func TestPathsAreComparedInDecodedForm(t *testing.T) {
	for path, want := range map[string]string{
		"/a/b": "/a/b", "/a//b": "/a/b", "/a/./b": "/a/b", "/a/../b": "/b", "/a/%2e%2E/b": "/b", "/%61": "/a",
		"/a%2fb": "/a/b", "/a/..": "/", "/a/.": "/a/", "//": "/",
		"/..": "!", "/a/../../b": "!", "/%2e%2e": "!", "/%": "!", "/%4": "!", "/%zz": "!", "/%00": "!",
		"/.a/..b": "/.a/..b", "/a..": "/a..",
	} {
		got, _, ok := PlainPath([]byte(path), nil)
		if ok != (want != "!") || ok && string(got) != want {
			t.Errorf("%s: %q, %t, want %s", path, got, ok, want)
		}
	}
}

// A rule's encoded path has the same meaning as the decoded one. Clients send both forms.
func TestEncodedRulePathsMatch(t *testing.T) {
	const exact, prefix = networkingv1.PathTypeExact, networkingv1.PathTypePrefix
	for _, c := range []struct {
		kind      networkingv1.PathType
		rule      string
		requested string
		declared  bool
	}{
		{exact, "/a%20b", "/a%20b", true}, {exact, "/a%20b", "/a%2520b", false}, {exact, "/a b", "/a%20b", true},
		{exact, "/caf%C3%A9", "/caf%c3%a9", true},
		{exact, "/café", "/caf%C3%A9", true}, {exact, "/caf%C3%A9", "/café", true}, {exact, "/%61", "/a", true},
		{exact, "/a", "/%61", true},
		{exact, "/100%", "/100%25", true}, {exact, "/100%25", "/100%25", true}, {exact, "/a%20b", "/a%20b/c", false},
		{prefix, "/a%20b", "/a%20b/c", true}, {prefix, "/a%20b/", "/a%20b", true}, {prefix, "/a%20b", "/a%20bc", false},
		{prefix, "/x%7Ey", "/x~y/z", true},
	} {
		in := ingressOf("i", 0, "a.example / "+string(c.kind)+" s")
		in.Spec.Rules[0].HTTP.Paths[0].Path = c.rule
		b := newBuilder()
		b.SetIngress(Key{"default", "i"}, in)
		listener := (&Listener{}).WithHosts(map[string][]PathRule{"": {{Path: c.rule, Exact: c.kind == exact,
			Rule: &Rule{}}}})
		plain, _, ok := PlainPath([]byte(c.requested), nil)
		if !ok {
			t.Fatal(c.requested)
		}
		for name, found := range map[string]bool{"Ingress": b.Table().Find([]byte("a.example"), plain,
			plainRequest{}) != nil, "HTTPRoute": listener.find([]byte("a.example"), plain, plainRequest{}) != nil} {
			if found != c.declared {
				t.Errorf("%s: %s %s matches %s: %t", name, c.kind, c.rule, c.requested, found)
			}
		}
	}
}

type plainRequest struct{}

func (plainRequest) Method() string               { return "GET" }
func (plainRequest) Header(string) (string, bool) { return "", false }
func (plainRequest) Query(string) (string, bool)  { return "", false }

func TestSwapsKeepTheEncodingOfTheRest(t *testing.T) {
	for _, c := range []struct{ prefix, to, sent, want string }{
		{"/shop", "/y", "/shop/a%20b", "/y/a%20b"}, {"/shop", "/y", "/%73hop/a%2Fb", "/y/a%2Fb"},
		{"/a%20b", "/y", "/a%20b/c", "/y/c"}, {"/a b", "/y", "/a%20b", "/y"},
		{"/shop", "/x%20y", "/%73hop/z", "/x%20y/z"}, {"/shop", "", "/shop", "/"}, {"/shop", "/", "/shop/a", "/a"},
		{"/", "/y", "/a", "/y/a"},
		{"/shop", "/y", "/shop//a", "/y/a"}, {"/shop", "/y", "/shop/b/../../shop/a%20b", "/y/a%20b"},
		{"/shop", "", "/shop%2Fevil.example", "/evil.example"},
		{"/shop", "", "/shop//evil.example", "/evil.example"}, {"/caf%C3%A9", "/y", "/caf%c3%a9/%C3%A9", "/y/%C3%A9"},
	} {
		if got, ok := NewSwap(c.prefix, c.to).Apply([]byte(c.sent)); !ok || got != c.want {
			t.Errorf("%s for %s in %s: %q, want %q", c.to, c.prefix, c.sent, got, c.want)
		}
	}
	if got, ok := NewSwap("/", "/y").Apply([]byte("/../x")); ok {
		t.Errorf("a path that leads out of the root becomes %q", got)
	}
}

// For any request, a path with a replaced prefix stays below that prefix and keeps its meaning.
func TestSwappedPathsStayBelowTheirPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := "/shop" + rapid.StringOf(rapid.SampledFrom([]rune("/.%2Fea5Ess"))).Draw(t, "rest")
		plain, _, ok := PlainPath([]byte(sent), nil)
		if !ok || len(plain) > 5 && plain[5] != '/' || len(plain) < 5 || string(plain[:5]) != "/shop" {
			return
		}
		got, ok := NewSwap("/shop", "/y").Apply([]byte(sent))
		if !ok {
			t.Fatalf("%s is not swapped", sent)
		}
		again, _, ok := PlainPath([]byte(got), nil)
		if want := "/y" + string(plain[5:]); !ok || string(again) != want {
			t.Fatalf("%s becomes %s, which means %s, want %s", sent, got, again, want)
		}
	})
}
