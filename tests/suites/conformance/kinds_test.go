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
	namespace string
}

// collection returns the path of the subject's objects.
func (s *subject) collection() string { return s.namespacePath(s.namespace) }

func (s *subject) newObject() (o object, path string) {
	o, name := s.newUnique(s.namespace)
	return o, s.collection() + "/" + name
}

// createObject creates an object with its own label.
func (s *subject) createObject(t testing.TB) (o object, path string) {
	t.Helper()
	o, path = s.newObject()
	o = s.mustAnswer(t, 201, post(s.collection(), o)).obj
	return s.awaitServerChanges(t, o, path), path
}

// decidedConditions are the conditions that the server writes to new objects of a kind, and their final status.
var decidedConditions = map[string]struct{ condition, status string }{
	"CustomResourceDefinition": {"Established", "True"},
	"FlowSchema":               {"Dangling", "False"},
}

// awaitServerChanges waits until the server has made its own changes to a new object.
func (s *subject) awaitServerChanges(t testing.TB, o object, path string) object {
	t.Helper()
	wanted, some := decidedConditions[s.Kind]
	if !some {
		return o
	}
	eventually(t, func() error {
		o = s.mustAnswer(t, 200, get("%s", path)).obj
		list, _ := valueAt(o, "status.conditions").([]any)
		for _, c := range list {
			if valueAt(c, "type") == any(wanted.condition) && valueAt(c, "status") == any(wanted.status) {
				return nil
			}
		}
		return fmt.Errorf("%s is not yet %s=%s: %v", path, wanted.condition, wanted.status, o["status"])
	})
	return o
}

// createLabelled creates objects with a common label, and returns the label's selector and the names.
func (s *subject) createLabelled(t testing.TB, n int) (label string, names []string) {
	t.Helper()
	label = fmt.Sprintf("group-%d", uniqueNumbers.Add(1))
	for range n {
		o, _ := s.newObject()
		made := s.mustAnswer(t, 201,
			post(s.collection(), withValue(o, "metadata.labels", object{"conformance": label})))
		names = append(names, made.textAt("metadata.name"))
		s.awaitServerChanges(t, made.obj, s.collection()+"/"+made.textAt("metadata.name"))
	}
	slices.Sort(names)
	return "conformance=" + label, names
}

func objectName(o object) string { s, _ := valueAt(o, "metadata.name").(string); return s }

func resourceVersion(o object) string {
	s, _ := valueAt(o, "metadata.resourceVersion").(string)
	return s
}

func objectUID(o object) string { s, _ := valueAt(o, "metadata.uid").(string); return s }

// kindBehaviours are the behaviours of every stored kind. Each needs a verb, and is not tested for kinds that do not
// serve it.
var kindBehaviours = []struct {
	name, verb string
	test       func(*testing.T, *subject)
}{
	{"create answers with what the server settled", "create", testCreate},
	{"create refuses what is there", "create", testCreateTwice},
	{"create refuses bad names", "create", testInvalidNames},
	{"create makes names", "create", testGenerateName},
	{"create refuses bad metadata", "create", testInvalidMetadata},
	{"create refuses what is wrong in words", "create", testInvalidValues},
	{"create is tried without a trace", "create", testCreateDryRun},
	{"create tells of unknown fields", "create", testFieldValidation},
	{"create refuses what is no such object", "create", testInvalidBodies},
	{"get answers with the object", "get", testGet},
	{"get answers in every media type", "get", testGetFormats},
	{"list selects", "list", testList},
	{"list comes in pages", "list", testListPages},
	{"list answers in every media type", "list", testListFormats},
	{"watch tells of every change", "watch", testWatch},
	{"watch begins with what there is", "watch", testInitialEvents},
	{"watch answers in every media type", "watch", testWatchFormats},
	{"update replaces", "update", testUpdate},
	{"update refuses what is stale or elsewhere", "update", testInvalidUpdates},
	{"update refuses what is wrong in words", "update", testInvalidUpdatedValues},
	{"patch changes in four ways", "patch", testPatch},
	{"patch refuses", "patch", testInvalidPatches},
	{"apply shares fields between managers", "patch", testApply},
	{"status is apart", "update", testStatus},
	{"delete removes", "delete", testDelete},
	{"delete heeds conditions", "delete", testDeletePreconditions},
	{"delete waits for finalizers", "delete", testDeleteWithFinalizers},
	{"deletecollection removes what is selected", "deletecollection", testDeleteCollection},
	{"methods that are not there are refused", "get", testUnsupportedMethods},
	{"protobuf and CBOR carry everything", "create", testEncodings},
}

// Every kind has the behaviours of all kinds.
// Proves S11, S12.
func TestAllKindsBehaveAsSpecified(t *testing.T) {
	c := sharedClient(t)
	for _, s := range readSamples(t) {
		// The server writes the status of an APIService whenever it has checked the backend. The API server's own tests
		// cover this kind.
		if s.IsAnswerOnly || s.Kind == "APIService" || unservedKinds[s.String()] {
			continue
		}
		t.Run(strings.ReplaceAll(s.String(), "/", "."), func(t *testing.T) {
			t.Parallel()
			on := &subject{sample: s, client: c, namespace: strings.ToLower(s.Kind) + fmt.Sprint(uniqueNumbers.Add(1))}
			c.createNamespace(t, on.namespace)
			for _, b := range kindBehaviours {
				if s.hasVerb(b.verb) {
					t.Run(b.name, func(t *testing.T) { b.test(t, on) })
				}
			}
		})
	}
}
