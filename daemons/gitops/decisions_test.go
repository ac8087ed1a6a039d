package gitops

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/config/gitsource"
)

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := o.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestHealthFollowsKstatus(t *testing.T) {
	const conditions = "status:\n  conditions:\n"
	for _, row := range []struct {
		object string
		want   HealthState
		reason string
	}{
		{"{apiVersion: v1, kind: ConfigMap}", HealthCurrent, ""},
		{"{apiVersion: v1, kind: ConfigMap, metadata: {deletionTimestamp: " +
			"'2026-01-01T00:00:00Z'}}", HealthTerminating, ""},
		{"{apiVersion: x/v1, kind: X, metadata: {generation: 2}, status: {observedGeneration: " +
			"1}}", HealthInProgress, ""},
		{"{apiVersion: x/v1, kind: X}", HealthCurrent, ""},
		{"apiVersion: x/v1\nkind: X\n" + conditions + "  - {type: Ready, status: 'False', reason: Waits, message: " +
			"for it}",
			HealthInProgress, "Waits: for it"},
		{"apiVersion: x/v1\nkind: X\n" + conditions + "  - {type: Ready, status: 'True'}", HealthCurrent, ""},
		{"apiVersion: x/v1\nkind: X\n" + conditions + "  - {type: Stalled, status: 'True', reason: " +
			"Broken}", HealthFailed,
			"Broken"},
		{"apiVersion: x/v1\nkind: X\n" + conditions + "  - {type: Reconciling, status: 'True'}", HealthInProgress, ""},
		{"{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}}", HealthInProgress, "not seen"},
		{"{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}, spec: {replicas: 2}, status: " +
			"{observedGeneration: 1, replicas: 2, updatedReplicas: 2, availableReplicas: 1}}", HealthInProgress,
			"1 of 2 pods are available"},
		{"{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}, spec: {replicas: 2}, status: " +
			"{observedGeneration: 1, replicas: 3, updatedReplicas: 2, availableReplicas: 2}}", HealthInProgress,
			"1 pods of an old version"},
		{"{apiVersion: apps/v1, kind: Deployment, metadata: {generation: 1}, spec: {replicas: 2}, status: " +
			"{observedGeneration: 1, replicas: 2, updatedReplicas: 2, availableReplicas: 2}}", HealthCurrent, ""},
		{"{apiVersion: apps/v1, kind: Deployment, status: {conditions: [{type: Progressing, status: 'False', " +
			"reason: ProgressDeadlineExceeded}]}}", HealthFailed, "ProgressDeadlineExceeded"},
		{"{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 1}, status: {readyReplicas: 1, updatedReplicas: " +
			"1, " +
			"currentRevision: a, updateRevision: b}}", HealthInProgress, "replaced"},
		{"{apiVersion: apps/v1, kind: DaemonSet, status: {desiredNumberScheduled: 2, numberAvailable: 2, " +
			"updatedNumberScheduled: 1}}", HealthInProgress, "1 of 2 pods are of the new version"},
		{"{apiVersion: v1, kind: Pod, status: {phase: Succeeded}}", HealthCurrent, ""},
		{"{apiVersion: v1, kind: Pod, status: {phase: Failed, reason: Evicted}}", HealthFailed, "Evicted"},
		{"{apiVersion: v1, kind: PersistentVolumeClaim, status: {phase: Lost}}", HealthFailed, "Lost"},
		{"{apiVersion: v1, kind: Service, spec: {type: LoadBalancer}}", HealthInProgress, "address"},
		{"{apiVersion: v1, kind: Service, spec: {type: ClusterIP}}", HealthCurrent, ""},
		{"{apiVersion: batch/v1, kind: Job}", HealthInProgress, "not started"},
		{"{apiVersion: batch/v1, kind: Job, status: {startTime: '2026-01-01T00:00:00Z'}}", HealthCurrent, ""},
		{"{apiVersion: batch/v1, kind: Job, status: {conditions: [{type: Failed, status: 'True', message: broken}]}}",
			HealthFailed, "broken"},
		{"{apiVersion: policy/v1, kind: PodDisruptionBudget, status: {currentHealthy: 1, desiredHealthy: 2}}",
			HealthInProgress, "1 of 2"},
		{"{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition}", HealthInProgress, "not served"},
	} {
		state, reason := Health(parse(t, row.object))
		if state != row.want || !strings.Contains(reason, row.reason) {
			t.Errorf("%s is %s (%s), want %s (%s)", row.object, state, reason, row.want, row.reason)
		}
	}
	if state, _ := Health(nil); state != HealthNotFound {
		t.Errorf("a missing object is %s", state)
	}
}

func TestPausesDoubleUpToALimit(t *testing.T) {
	spec := &gitsource.Spec{RetryInterval: &metav1.Duration{Duration: 10 * time.Second}}
	for failures, want := range map[int]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 4: 80 * time.Second,
		7: maxBackoff, 1000: maxBackoff} {
		if got := backoff(spec, failures); got != want {
			t.Errorf("after %d failures the pause is %s, want %s", failures, got, want)
		}
	}
}

func TestTheSelectedRevisionIsThatOfTheSpec(t *testing.T) {
	commit := func(n int) string { return fmt.Sprintf("%040d", n) }
	refs := []Ref{{Name: "refs/heads/main", Hash: commit(1)}, {Name: "refs/heads/next", Hash: commit(2)},
		{Name: "refs/tags/v1.0.0", Hash: commit(3)}, {Name: "refs/tags/v1.1.0", Hash: commit(4), Tag: commit(6)},
		{Name: "refs/tags/next", Hash: commit(5)}}
	for _, row := range []struct {
		spec       gitsource.Spec
		head, want string
	}{
		{gitsource.Spec{}, "refs/heads/main", "main@sha1:" + commit(1)},
		{gitsource.Spec{Branch: "next"}, "", "next@sha1:" + commit(2)},
		{gitsource.Spec{Tag: "next"}, "", "next@sha1:" + commit(5)},
		{gitsource.Spec{Semver: "1.x"}, "", "v1.1.0@sha1:" + commit(4)},
		{gitsource.Spec{Commit: commit(9)}, "", "commit@sha1:" + commit(9)},
		{gitsource.Spec{}, "", ""},
		{gitsource.Spec{Branch: "v1.0.0"}, "", ""},
		{gitsource.Spec{Tag: "main"}, "", ""},
		{gitsource.Spec{Semver: "2.x"}, "", ""},
	} {
		got, err := SelectRevision(&row.spec, refs, row.head)
		if (err != nil) != (row.want == "") || err == nil && got.Revision() != row.want {
			t.Errorf("%+v selects %+v, %v, want %q", row.spec, got, err, row.want)
		}
	}
}

// A source waits for others that follow the same revisions before it deletes objects. Charts of one Helm repository
// have revisions of their own.
func TestSourcesOfOneHelmRepositoryDoNotFollowEachOther(t *testing.T) {
	const url = "https://charts.example"
	chart := func(name, version string) gitsource.Spec {
		return gitsource.Spec{URL: url, Helm: &gitsource.Helm{Chart: name, Version: version}}
	}
	values := chart("web", "1.x")
	values.Helm.Release = "other"
	for name, row := range map[string]struct {
		a, b gitsource.Spec
		want bool
	}{
		"one chart":      {chart("web", "1.x"), values, true},
		"two charts":     {chart("web", ""), chart("db", ""), false},
		"two versions":   {chart("web", "1.x"), chart("web", "2.x"), false},
		"a Git source":   {chart("web", ""), gitsource.Spec{URL: url}, false},
		"Git and values": {gitsource.Spec{URL: url, Helm: &gitsource.Helm{}}, gitsource.Spec{URL: url}, true},
		"two digests":    {gitsource.Spec{URL: "oci://r/a", Digest: "x"}, gitsource.Spec{URL: "oci://r/a"}, false},
		"the same digest": {gitsource.Spec{URL: "oci://r/a", Digest: "x"},
			gitsource.Spec{URL: "oci://r/a", Digest: "x"}, true},
	} {
		a, b := &Source{Spec: row.a}, &Source{Spec: row.b}
		if a.follows(b) != row.want || b.follows(a) != row.want {
			t.Errorf("%s: %v", name, !row.want)
		}
	}
}

func source(name string, inventory ...string) *Source {
	s := &Source{}
	s.Namespace, s.Name = gitsource.Namespace, name
	s.Status.Inventory = inventory
	return s
}

func TestOnlyObjectsThatNoOtherSourceClaimsAreDeleted(t *testing.T) {
	const id = "v1 ConfigMap default/a"
	parsed, err := ParseID(id)
	if err != nil {
		t.Fatal(err)
	}
	live := func(owner string, more ...string) *unstructured.Unstructured {
		o := parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default, uid: u}}")
		annotations := map[string]string{}
		if owner != "" {
			annotations[gitsource.SourceAnnotation] = owner
			o.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: gitsource.Manager,
				Operation: metav1.ManagedFieldsOperationApply}})
		}
		for i := 0; i+1 < len(more); i += 2 {
			annotations[more[i]] = more[i+1]
		}
		o.SetAnnotations(annotations)
		return o
	}
	deleting := live("kube-system/own")
	deleting.SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
	behind, ahead := source("behind"), source("ahead")
	ahead.Status.RenderedRevision = "r"
	elsewhere := source("elsewhere")
	elsewhere.Spec.URL = "https://git.example/other"
	suspended := source("suspended")
	suspended.Spec.Suspend = true
	losing := source("losing", id)
	losing.Status.Pruning = []string{id}
	for _, s := range []*Source{behind, ahead, suspended, losing} {
		s.Spec.URL = "https://git.example/own"
	}
	losing.Status.RenderedRevision = "r"
	tenants := source("tenants")
	tenants.Namespace, tenants.Spec = "team", behind.Spec
	for name, row := range map[string]struct {
		live   *unstructured.Unstructured
		others []*Source
		want   pruneAction
	}{
		"its own object":                        {live("kube-system/own"), nil, pruneDelete},
		"an object that does not exist":         {nil, nil, pruneRelease},
		"an object that is being deleted":       {deleting, nil, pruneWait},
		"an object of another source":           {live("kube-system/other"), nil, pruneRelease},
		"an object that another client created": {live(""), nil, pruneRelease},
		"an object with the annotation": {live("kube-system/own", gitsource.PruneAnnotation, "disabled"),
			nil, pruneRelease},
		"another source has not seen the commit":    {live("kube-system/own"), []*Source{behind}, pruneWait},
		"another source has seen the commit":        {live("kube-system/own"), []*Source{ahead}, pruneDelete},
		"a source of another repository":            {live("kube-system/own"), []*Source{elsewhere}, pruneDelete},
		"a tenant's source has not seen the commit": {live("kube-system/own"), []*Source{tenants}, pruneDelete},
		"a suspended source":                        {live("kube-system/own"), []*Source{suspended}, pruneDelete},
		"another source has it in its inventory": {live("kube-system/own"), []*Source{source("new", id)},
			pruneWait},
		"another source no longer renders it either": {live("kube-system/own"), []*Source{losing}, pruneDelete},
	} {
		own := source("own", id)
		own.Spec.URL = "https://git.example/own"
		got := decidePrune(own, "r", parsed, row.live, row.others)
		if got.action != row.want || (got.action == pruneDelete) != (got.uid == "u") ||
			(got.action != pruneDelete) != (got.reason != "") {
			t.Errorf("%s: %+v, want %s", name, got, row.want)
		}
	}
	no := false
	own := source("own", id)
	own.Spec.Prune = &no
	if got := decidePrune(own, "r", parsed, live("kube-system/own"), nil); got.action != pruneRelease {
		t.Errorf("a source that does not prune: %+v", got)
	}
}

func TestInventoriesKeepEveryObject(t *testing.T) {
	ids, err := parseInventory([]string{"v1 ConfigMap default/a", "apps/v1 Deployment shop/web", "v1 Namespace shop"})
	role := ObjectID{"rbac.authorization.k8s.io/v1", "ClusterRole", "", "may read"}
	if got, err := ParseID(role.String()); err != nil || got != role {
		t.Errorf("%v, %v", got, err)
	}
	if err != nil || len(ids) != 3 || ids[2].Namespace != "" || ids[2].Name != "shop" {
		t.Fatalf("%v, %v", ids, err)
	}
	newer := inventory{{"apps/v2", "Deployment", "shop", "web"}, {"v1", "Secret", "shop", "s"}}
	if got := newer.union(ids); len(got) != 4 || got[0].APIVersion != "apps/v2" {
		t.Errorf("the union is %v", got)
	}
	if got := ids.without(newer); len(got) != 2 {
		t.Errorf("the difference is %v", got)
	}
	for _, text := range []string{"", "v1 ConfigMap", " ConfigMap a", "v1 ConfigMap default/"} {
		if _, err := parseInventory([]string{text}); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

func TestObjectsThatOthersNeedAreDeletedLast(t *testing.T) {
	ids := []ObjectID{{"v1", "Namespace", "", "shop"}, {"v1", "ConfigMap", "shop", "c"}, {"v1", "Pod", "shop", "p"},
		{"apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "x"}, {"x/v1", "X", "shop", "x"}}
	var kinds []string
	for _, id := range deletionOrder(ids) {
		kinds = append(kinds, id.Kind)
	}
	if got := strings.Join(kinds, " "); got != "X Pod ConfigMap CustomResourceDefinition Namespace" {
		t.Errorf("the order is %s", got)
	}
}

func TestMessagesAreShortAndValid(t *testing.T) {
	if got := shorten(strings.Repeat("ä", maxMessage)); len(got) > maxMessage || !strings.HasSuffix(got, "ä…") {
		t.Errorf("%d bytes, ends with %q", len(got), got[len(got)-6:])
	}
	list := make([]string, 50)
	for i := range list {
		list[i] = strings.Repeat("x", 2*maxMessage)
	}
	got := limitList(list)
	if len(got) != maxListed || got[maxListed-1] != fmt.Sprintf("and %d more", 50-maxListed+1) ||
		len(got[0]) > maxMessage {
		t.Errorf("%d entries, the last is %q", len(got), got[len(got)-1])
	}
}

// Hostile files are errors that name the file, and cost little memory.
func TestHostileManifestsAreRefused(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1,
			c-1,
			c-1, c-1, c-1)
	}
	long := "a: &a " + strings.Repeat("x", 1<<20) + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a,", 1000), ",") +
		"]\n"
	for name, row := range map[string]struct{ text, want string }{
		"an alias bomb":        {bomb, "after its aliases are expanded"},
		"a long repeated text": {long, "after its aliases are expanded"},
		"a large object": {"apiVersion: v1\nkind: A\nmetadata: {name: a}\nx: " + strings.Repeat("x", MaxObject),
			"at most"},
		"a duplicate key":       {"apiVersion: v1\nkind: A\nkind: B\nmetadata: {name: a}\n", "already set"},
		"a scalar":              {"hello\n", "is not an object"},
		"a list":                {"[1, 2]\n", "is not an object"},
		"an object in a list":   {"apiVersion: v1\nkind: List\nitems: [{kind: A}]\n", "needs apiVersion"},
		"many items":            {"a: [" + strings.Repeat("1,", 1<<20) + "]\n", "divide it"},
		"many lines":            {"a:\n" + strings.Repeat("-\n", 1<<19), "divide it"},
		"deep nesting":          {strings.Repeat("[", 20_000), "f.yaml:1"},
		"a name that is a list": {"apiVersion: v1\nkind: A\nmetadata: {name: [a]}\n", "needs apiVersion"},
	} {
		if _, err := ParseManifest("f.yaml", []byte(row.text)); err == nil ||
			!strings.Contains(err.Error(), row.want) ||
			!strings.HasPrefix(err.Error(), "f.yaml:") {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	many := []byte("a: [" + strings.Repeat("1,", 1<<20) + "]\n")
	if err := CheckYAML("f.yaml", many); err == nil || !strings.Contains(err.Error(), "divide it") {
		t.Errorf("many items: %v", err)
	}
	if err := CheckYAML("f.txt", many); err != nil {
		t.Errorf("a file of another kind: %v", err)
	}
	// The largest objects have about a tenth of the values.
	crds := []byte(strings.Repeat("description: a text, of some words\n", 1<<14) + "---\n")
	if err := CheckYAML("f.yaml", bytes.Repeat(crds, 20)); err != nil {
		t.Error(err)
	}
	objects, err := ParseManifest("f.yaml", []byte("\uFEFF# c\n---\n---\napiVersion: v1\nkind: A\nmetadata: {name: "+
		"a}\n"+
		"x: &x {y: 1}\nz: *x\n--- # next\nnull\n---\r\napiVersion: v1\r\nkind: List\r\nitems:\r\n"+
		"- {apiVersion: v1, kind: B, metadata: {name: b}}\r\n"))
	if err != nil || len(objects) != 2 || objects[0].Line != 4 || objects[1].GetKind() != "B" {
		t.Errorf("%v, %v", objects, err)
	}
}

func TestDifferencesOfValuesFromSecretsAreHidden(t *testing.T) {
	for kind, want := range map[string]string{"Secret": "data.a: (hidden)", "ConfigMap": "data.a: x, want y"} {
		s := &Source{}
		s.Spec.Helm = &gitsource.Helm{ValuesFrom: []gitsource.ValuesFrom{{Kind: kind, Name: "values"}}}
		if got := visibleDiff(s, []string{"data.a: x, want y"}); got[0] != want {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: A\nmetadata: {name: a}\n---\nkind: List\nitems: []\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		objects, err := ParseManifest("f.yaml", text)
		if err != nil {
			return
		}
		for _, o := range objects {
			if o.GetName() == "" || o.GetKind() == "" || o.GetAPIVersion() == "" || o.Line < 1 {
				t.Errorf("%q contains %+v", text, o)
			}
		}
	})
}

func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	files := fstest.MapFS{"a.yaml": {Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink | 0o777}}
	s := source("own")
	_, err := Manifests{}.Render(t.Context(), s, Snapshot{Files: noFollow{files}}, nil)
	if err == nil || !strings.Contains(err.Error(), "a.yaml: symbolic links are not followed") {
		t.Errorf("%v", err)
	}
	s.Spec.Path = "a.yaml"
	if _, err := (Manifests{}).Render(t.Context(), s, Snapshot{Files: noFollow{files}}, nil); err == nil {
		t.Error("a link is accepted as the folder")
	}
}

// noFollow opens symbolic links themselves, as the files of a commit do.
type noFollow struct{ fstest.MapFS }

func (f noFollow) Open(name string) (fs.File, error) {
	file := *f.MapFS[name]
	file.Mode &^= fs.ModeSymlink
	opened, err := fstest.MapFS{name: &file}.Open(name)
	return linkFile{opened}, err
}

func (f noFollow) Stat(name string) (fs.FileInfo, error) { return f.MapFS.Lstat(name) }

func (f noFollow) ReadDir(name string) ([]fs.DirEntry, error) { return f.MapFS.ReadDir(name) }

type linkFile struct{ fs.File }

func (f linkFile) Stat() (fs.FileInfo, error) {
	info, err := f.File.Stat()
	return linkInfo{info}, err
}

type linkInfo struct{ fs.FileInfo }

func (linkInfo) Mode() fs.FileMode { return fs.ModeSymlink | 0o777 }

func TestPreparedObjectsHaveNamespacesAndAnOwner(t *testing.T) {
	objects, err := ParseManifest("f.yaml", []byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: xs.x}
spec: {group: x, scope: Namespaced, names: {kind: X}}
---
{apiVersion: x/v1, kind: X, metadata: {name: x}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: other, creationTimestamp: null}, status: {a: 1}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, namespace: default}}
`))
	if err != nil {
		t.Fatal(err)
	}
	scope := func(gk schema.GroupKind) (Scope, error) {
		if gk.Kind == "ConfigMap" {
			return ScopeNamespaced, nil
		}
		return ScopeCluster, nil
	}
	s := source("own")
	s.Namespace = "shop"
	prepared, err := prepare(s, objects, scope)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"apiextensions.k8s.io/v1 CustomResourceDefinition xs.x", "x/v1 X shop/x", "v1 ConfigMap other/a",
		"v1 Namespace shop"}
	if got := idsOf(prepared).strings(); !slices.Equal(got, want) {
		t.Errorf("the objects are %q", got)
	}
	for _, o := range prepared {
		if o.GetAnnotations()[gitsource.SourceAnnotation] != "shop/own" || o.Object["status"] != nil {
			t.Errorf("%v", o.Object)
		}
	}
	if len(objects[0].GetAnnotations()) > 0 {
		t.Error("the rendered objects were changed")
	}
	for text, want := range map[string]string{
		"{apiVersion: v1, kind: A, metadata: {name: a, uid: x}}":               "metadata.uid is set by the API server",
		"{apiVersion: v1, kind: A, metadata: {name: a, resourceVersion: '1'}}": "metadata.resourceVersion",
		"{apiVersion: v1, kind: A, metadata: {name: a, annotations: {x: 1}}}":  "must be a string",
		"{apiVersion: v1, kind: A, metadata: {name: a, labels: {x: true}}}":    "must be a string",
		"{apiVersion: v1, kind: A, metadata: {name: a, annotations: {" + gitsource.DriftAnnotation +
			": x}}}": "is not one of",
		"{apiVersion: v1, kind: A, metadata: {name: a, annotations: {" + gitsource.SourceAnnotation +
			": x}}}": "is set by the controller",
	} {
		objects, err := ParseManifest("f.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := prepare(s, objects, scope); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The sources of tenants, whose servers may answer slowly, leave workers to others.
func TestTenantsDoNotOccupyAllWorkers(t *testing.T) {
	c := &Controller{Config: Config{Workers: 4}, occupied: map[string]int{}}
	team, other, own := Key{Namespace: "team"}, Key{Namespace: "other"}, Key{Namespace: gitsource.Namespace}
	for i, step := range []struct {
		key  Key
		want bool
	}{{team, true}, {team, true}, {team, false}, {other, true}, {other, false}, {own, true}} {
		if got := c.occupy(step.key); got != step.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
	c.vacate(team)
	c.vacate(own)
	if !c.occupy(other) || c.occupy(team) {
		t.Errorf("after one has ended: %v", c.occupied)
	}
}
