package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// subject is a kind under test, with a namespace that nothing else uses.
type subject struct {
	*sample
	*client
	ns string
}

// collection returns the path of the subject's objects.
func (s *subject) collection() string { return s.in(s.ns) }

func (s *subject) new() (o object, path string) {
	o, name := s.make(s.ns)
	return o, s.collection() + "/" + name
}

// created creates an object with its own label.
func (s *subject) created(t testing.TB) (o object, path string) {
	t.Helper()
	o, path = s.new()
	o = s.must(t, 201, post(s.collection(), o)).obj
	return s.settled(t, o, path), path
}

// decided are the conditions that the server writes to new objects of a kind, and their final status.
var decided = map[string]struct{ condition, status string }{
	"CustomResourceDefinition": {"Established", "True"},
	"FlowSchema":               {"Dangling", "False"},
}

// settled waits until the server has made its own changes to a new object.
func (s *subject) settled(t testing.TB, o object, path string) object {
	t.Helper()
	wanted, some := decided[s.Kind]
	if !some {
		return o
	}
	eventually(t, func() error {
		o = s.must(t, 200, get("%s", path)).obj
		list, _ := at(o, "status.conditions").([]any)
		for _, c := range list {
			if at(c, "type") == any(wanted.condition) && at(c, "status") == any(wanted.status) {
				return nil
			}
		}
		return fmt.Errorf("%s is not yet %s=%s: %v", path, wanted.condition, wanted.status, o["status"])
	})
	return o
}

// some creates objects with a common label, and returns the label's selector and the names.
func (s *subject) some(t testing.TB, n int) (label string, names []string) {
	t.Helper()
	label = fmt.Sprintf("group-%d", numbers.Add(1))
	for range n {
		o, _ := s.new()
		made := s.must(t, 201, post(s.collection(), with(o, "metadata.labels", object{"conformance": label})))
		names = append(names, made.text("metadata.name"))
		s.settled(t, made.obj, s.collection()+"/"+made.text("metadata.name"))
	}
	slices.Sort(names)
	return "conformance=" + label, names
}

func name(o object) string { s, _ := at(o, "metadata.name").(string); return s }

func version(o object) string { s, _ := at(o, "metadata.resourceVersion").(string); return s }

func uid(o object) string { s, _ := at(o, "metadata.uid").(string); return s }

// behaviours are the behaviours of every stored kind. Each needs a verb, and is not tested for kinds that do not serve
// it.
var behaviours = []struct {
	name, verb string
	test       func(*testing.T, *subject)
}{
	{"create answers with what the server settled", "create", creates},
	{"create refuses what is there", "create", createsOnce},
	{"create refuses bad names", "create", refusesNames},
	{"create makes names", "create", generatesNames},
	{"create refuses bad metadata", "create", refusesMetadata},
	{"create refuses what is wrong in words", "create", refusesValues},
	{"create is tried without a trace", "create", triesCreate},
	{"create tells of unknown fields", "create", validatesFields},
	{"create refuses what is no such object", "create", refusesBodies},
	{"get answers with the object", "get", gets},
	{"get answers in every media type", "get", getsAs},
	{"list selects", "list", lists},
	{"list comes in pages", "list", listsPages},
	{"list answers in every media type", "list", listsAs},
	{"watch tells of every change", "watch", watches},
	{"watch begins with what there is", "watch", watchesInitially},
	{"watch answers in every media type", "watch", watchesAs},
	{"update replaces", "update", updates},
	{"update refuses what is stale or elsewhere", "update", refusesUpdates},
	{"update refuses what is wrong in words", "update", refusesUpdatedValues},
	{"patch changes in four ways", "patch", patches},
	{"patch refuses", "patch", refusesPatches},
	{"apply shares fields between managers", "patch", applies},
	{"status is apart", "update", statuses},
	{"delete removes", "delete", deletes},
	{"delete heeds conditions", "delete", deletesConditionally},
	{"delete waits for finalizers", "delete", deletesFinally},
	{"deletecollection removes what is selected", "deletecollection", deletesMany},
	{"methods that are not there are refused", "get", refusesMethods},
	{"protobuf and CBOR carry everything", "create", encodes},
}

// Every kind has the behaviours of all kinds.
// Proves S11, S12.
func TestEveryKindBehaves(t *testing.T) {
	c := shared(t)
	for _, s := range samples(t) {
		// The server writes the status of an APIService whenever it has checked the backend. The API server's own tests
		// cover this kind.
		if s.Answered || s.Kind == "APIService" || elsewhere[s.String()] {
			continue
		}
		t.Run(strings.ReplaceAll(s.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			on := &subject{sample: s, client: c, ns: strings.ToLower(s.Kind) + fmt.Sprint(numbers.Add(1))}
			c.namespace(t, on.ns)
			for _, b := range behaviours {
				if s.serves(b.verb) {
					t.Run(b.name, func(t *testing.T) { b.test(t, on) })
				}
			}
		})
	}
}
