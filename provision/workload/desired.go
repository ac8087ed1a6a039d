package workload

import (
	"cmp"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/hcl/config"
	"clusterctl/provision/state"
)

// Labels of applied objects. ManagedByLabel marks objects that clusterctl has applied.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	NameLabel      = "app.kubernetes.io/name"
)

// Desired is a declared object.
type Desired struct {
	Address       string
	Block         string // address of its block, as used in depends_on
	Object        *unstructured.Unstructured
	Source        config.Source // source of its block; zero for objects of the cluster itself
	IsNeverPruned bool          // never pruned, because other objects may depend on it
	CanAdopt      bool          // may be applied over an existing object that clusterctl has not applied
	DependsOn     []string      // addresses in depends_on, whose objects must be healthy first
	Wave          int           // objects of a later wave are applied when all earlier ones are healthy
	HasDependents bool          // other objects depend on it; a Job must complete before they are applied

	IsProtected bool // may not be deleted later, even if it is no longer declared
	Ignored     config.Ignored
	live        *unstructured.Unstructured // the live object that was compared or written; nil if it does not exist
	read        *unstructured.Unstructured // the live object as the caller has just read it; nil if it is not known
	// resourceVersion of the live object that ignored fields were copied from; "" means none
	version string
}

func (d Desired) reference() state.Object {
	return state.Object{
		APIVersion:  d.Object.GetAPIVersion(),
		Kind:        d.Object.GetKind(),
		Namespace:   d.Object.GetNamespace(),
		Name:        d.Object.GetName(),
		Address:     d.Address,
		IsProtected: d.IsProtected,
	}
}

// Objects returns all objects of a configuration, in the order in which they are applied.
func Objects(c *config.Cluster) ([]Desired, error) {
	list, err := baseObjects(c)
	if err != nil {
		return nil, err
	}
	return withDeclared(list, c, Manager)
}

// DeclaredObjects returns the objects that a configuration declares, without those of the cluster itself, in the order
// in which they are applied. manager is the value of ManagedByLabel.
func DeclaredObjects(c *config.Cluster, manager string) ([]Desired, error) {
	return withDeclared(nil, c, manager)
}

// withDeclared adds the declared objects and the namespaces that they need to a list.
func withDeclared(list []Desired, c *config.Cluster, manager string) ([]Desired, error) {
	namespaces := map[string]bool{}
	var declared []Desired
	for _, o := range c.Objects {
		d := Desired{Address: o.Address, Source: o.Source, IsProtected: o.PreventDestroy, Ignored: o.Ignored,
			Block: o.Block, DependsOn: o.DependsOn,
			Object: &unstructured.Unstructured{Object: runtime.DeepCopyJSON(jsonNumbers(o.Content).(map[string]any))}}
		if d.Object.GetKind() == "Namespace" && d.Object.GetAPIVersion() == "v1" {
			namespaces[d.Object.GetName()] = true
		}
		declared = append(declared, d)
	}
	for _, w := range c.Workloads {
		objects, err := objectsOfWorkload(w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.Address, err)
		}
		for i := range objects {
			objects[i].Source, objects[i].Block, objects[i].DependsOn, objects[i].IsProtected = w.Source, w.Address,
				w.DependsOn, w.PreventDestroy
			objects[i].Ignored = ignoredOf(w, objects[i].Object.GetKind())
		}
		declared = append(declared, objects...)
	}
	for _, ns := range neededNamespaces(declared) {
		if !namespaces[ns] {
			list = append(
				list,
				Desired{
					Address:       "namespace." + ns,
					IsNeverPruned: true,
					Object: &unstructured.Unstructured{Object: map[string]any{
						"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns},
					}},
				},
			)
		}
	}
	list = append(list, declared...)
	for _, d := range list {
		labels := d.Object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		if d.Object.GetKind() != "Node" && labels[ManagedByLabel] == "" {
			labels[ManagedByLabel] = manager
			d.Object.SetLabels(labels)
		}
	}
	setWaves(list)
	slices.SortStableFunc(list, func(a, b Desired) int {
		return cmp.Or(cmp.Compare(a.Wave, b.Wave),
			cmp.Compare(kindRank(a.Object.GetKind()), kindRank(b.Object.GetKind())))
	})
	return list, nil
}

// ObjectsOf returns the Kubernetes objects of a workload.
func ObjectsOf(w config.Workload) (list []map[string]any, err error) {
	objects, err := objectsOfWorkload(w)
	for _, o := range objects {
		list = append(list, o.Object.Object)
	}
	return list, err
}

// neededNamespaces returns the namespaces that objects need and that do not always exist.
func neededNamespaces(list []Desired) []string {
	found := map[string]bool{}
	for _, d := range list {
		switch ns := d.Object.GetNamespace(); ns {
		case "", "default", "kube-system", "kube-public", "kube-node-lease":
		default:
			found[ns] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// kindRank orders kinds so that objects that others need come first.
func kindRank(kind string) int {
	order := []string{
		"Namespace",
		"CustomResourceDefinition",
		"PriorityClass",
		"StorageClass",
		"ServiceAccount",
		"ClusterRole",
		"Role",
		"ClusterRoleBinding",
		"RoleBinding",
		"ConfigMap",
		"Secret",
		"PersistentVolumeClaim",
	}
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

// toObject converts a typed object to an unstructured one with only the fields that it sets.
func toObject(address string, typed any) (Desired, error) {
	text, err := json.Marshal(typed)
	if err != nil {
		return Desired{}, err
	}
	content := map[string]any{}
	if err := json.Unmarshal(text, &content); err != nil {
		return Desired{}, err
	}
	delete(content, "status")
	pruneEmpty(content)
	return Desired{
		Address: address,
		Object:  &unstructured.Unstructured{Object: jsonNumbers(content).(map[string]any)},
	}, nil
}

// pruneEmpty removes fields that typed structs encode although they are not set.
func pruneEmpty(v map[string]any) {
	for k, e := range v {
		switch e := e.(type) {
		case nil:
			delete(v, k)
		case map[string]any:
			if pruneEmpty(e); k == "metadata" {
				delete(e, "creationTimestamp")
			}
			if len(e) == 0 && (k == "resources" || k == "strategy" || k == "updateStrategy") {
				delete(v, k)
			}
		case []any:
			for _, item := range e {
				m, ok := item.(map[string]any)
				if !ok {
					continue
				}
				pruneEmpty(m)
				if k == "volumeClaimTemplates" {
					delete(m, "status")
				}
			}
		}
	}
}

// jsonNumbers converts whole numbers to int64, as the API machinery requires.
func jsonNumbers(v any) any {
	switch v := v.(type) {
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case int:
		return int64(v)
	case map[string]any:
		for k, e := range v {
			v[k] = jsonNumbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = jsonNumbers(e)
		}
	}
	return v
}

func mapDigest(m map[string]string) string {
	sum := sha256.New()
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(sum, "%q=%q\n", k, m[k])
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// digestRounds is how often slowDigest hashes, so that short secrets are expensive to guess.
const digestRounds = 4096

// slowDigest returns a digest of secrets. It has only 24 bits, so that many other texts have the same one.
func slowDigest(m map[string]string, salt string) (string, error) {
	text := &strings.Builder{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(text, "%q=%q\n", k, m[k])
	}
	sum, err := pbkdf2.Key(sha256.New, text.String(), []byte(salt), digestRounds, 3)
	return hex.EncodeToString(sum), err
}
