package route

import (
	"fmt"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
)

// After any changes of Ingresses with shared hosts and paths, the updated table equals a newly built one.
func TestUpdatedTablesEqualNewlyBuiltOnes(t *testing.T) {
	lines := []string{
		"a.example / Prefix one",
		"a.example /x Prefix two",
		"a.example /x Exact three",
		"a.example /x/ Prefix four",
		"*.example / Prefix five",
		"- /x Prefix six",
		"a.example /x ImplementationSpecific one",
	}
	var many []string // more than maxSmallPaths
	for i := range maxSmallPaths + 10 {
		many = append(many, fmt.Sprintf("a.example /many/%d Prefix one", i),
			fmt.Sprintf("a.example /many/%d Exact two", i))
	}
	rapid.Check(t, func(r *rapid.T) {
		b, all := newBuilder(), map[string]*networkingv1.Ingress{}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			name := rapid.SampledFrom([]string{"i", "j", "k", "l"}).Draw(r, "name")
			if rapid.IntRange(0, 3).Draw(r, "goes") == 0 {
				delete(all, name)
				b.SetIngress(Key{"default", name}, nil)
			} else {
				current := rapid.SliceOfNDistinct(rapid.SampledFrom(lines), 0, 4, rapid.ID).Draw(r, "lines")
				if rapid.IntRange(0, 3).Draw(r, "many") == 0 {
					current = append(current, many[rapid.IntRange(0, len(many)-1).Draw(r, "from"):]...)
				}
				in := ingressOf(name, time.Duration(rapid.IntRange(0, 2).Draw(r, "age"))*time.Hour, current...)
				if rapid.Bool().Draw(r, "default") {
					in.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
						Name: "rest-" + name, Port: networkingv1.ServiceBackendPort{Number: 80}}}
				}
				all[name] = in
				b.SetIngress(Key{"default", name}, in)
			}
			if rapid.Bool().Draw(r, "together") {
				continue
			}
			rebuilt := newBuilder()
			for name, in := range all {
				rebuilt.SetIngress(Key{"default", name}, in)
			}
			got, want := b.Table(), rebuilt.Table()
			for _, host := range []string{"a.example", "b.example", "c.test"} {
				for _, path := range []string{"/", "/x", "/x/", "/x/y", "/y", "/many", "/many/0", "/many/7/x",
					"/many/70", "/many/73"} {
					current, should := got.Find([]byte(host), []byte(path), nil),
						want.Find([]byte(host), []byte(path), nil)
					if (current == nil) != (should == nil) ||
						current != nil && (current.Source != should.Source || current.Path != should.Path) {
						r.Fatalf("%s%s has %+v, and after a rebuild %+v", host, path, current, should)
					}
				}
			}
		}
		for name := range all {
			b.SetIngress(Key{"default", name}, nil)
		}
		if table := b.Table(); table.host("a.example") != nil || table.host("*.example") != nil ||
			table.host("") != nil ||
			len(b.claims) > 0 {
			r.Fatal("something is left of Ingresses that have gone")
		}
	})
}
