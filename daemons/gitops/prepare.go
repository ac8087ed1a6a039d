package gitops

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/config/gitsource"
)

// serverFields are the fields of metadata that only the API server sets. Objects that were read from a cluster contain
// them.
var serverFields = []string{"uid", "resourceVersion", "managedFields", "generation", "selfLink"}

// prepare checks rendered objects and completes their metadata: the namespace of objects that name none, and the
// annotation with their source. scope returns the scope of a kind that the API serves.
func prepare(s *Source, objects []Object, scope func(schema.GroupKind) (Scope, error)) ([]Object, error) {
	if len(objects) > MaxObjects {
		return nil, fmt.Errorf("%d objects are rendered, and at most %d are allowed", len(objects), MaxObjects)
	}
	scopes := definedScopes(objects)
	prepared := make([]Object, 0, len(objects))
	first := map[identity]Object{}
	for _, o := range objects {
		o.Unstructured = o.Unstructured.DeepCopy()
		if err := checkObject(o); err != nil {
			return nil, err
		}
		gk := o.GroupVersionKind().GroupKind()
		if _, ok := scopes[gk]; !ok {
			of, err := scope(gk)
			if err != nil {
				return nil, fmt.Errorf("find out whether %s has a namespace: %w", gk, err)
			}
			scopes[gk] = of
		}
		switch scopes[gk] {
		case ScopeNamespaced:
			o.SetNamespace(cmp.Or(o.GetNamespace(), s.DefaultNamespace()))
		case ScopeCluster:
			unstructured.RemoveNestedField(o.Object, "metadata", "namespace")
		}
		id := o.ID().identity()
		if other, twice := first[id]; twice {
			return nil, fmt.Errorf("%s is declared twice: the other is %s", o.position(), other.position())
		}
		first[id] = o
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		o.Adopt = annotations[gitsource.AdoptAnnotation] == gitsource.Enabled
		annotations[gitsource.SourceAnnotation] = s.owner()
		o.SetAnnotations(annotations)
		prepared = append(prepared, o)
	}
	if size := idsOf(prepared).size(); size > MaxInventory {
		return nil, fmt.Errorf("the names of the %d objects have %d bytes, and an inventory has at most %d; "+
			"divide the folder among several sources", len(prepared), size, MaxInventory)
	}
	return prepared, nil
}

// checkObject returns an error if an object has a field or an annotation that cannot be carried out.
func checkObject(o Object) error {
	metadata, _ := o.Object["metadata"].(map[string]any)
	for _, field := range serverFields {
		if v, ok := metadata[field]; ok && v != nil {
			return fmt.Errorf("%s: metadata.%s is set by the API server; remove it", o.position(), field)
		}
	}
	if mac, _, err := unstructured.NestedString(o.Object, "sops", "mac"); err == nil && mac != "" {
		return &ReasonError{ReasonDecryption, fmt.Errorf("%s: the file is encrypted with SOPS; set spec.decryption",
			o.position())}
	}
	delete(metadata, "creationTimestamp") // generators write null
	delete(o.Object, "status")
	if o.GetName() == "" {
		return fmt.Errorf("%s: metadata.name is missing; generateName would create a new object each "+
			"time", o.position())
	}
	if _, _, err := unstructured.NestedStringMap(o.Object, "metadata", "annotations"); err != nil {
		return fmt.Errorf("%s: metadata.annotations: every value must be a string", o.position())
	}
	if _, _, err := unstructured.NestedStringMap(o.Object, "metadata", "labels"); err != nil {
		return fmt.Errorf("%s: metadata.labels: every value must be a string", o.position())
	}
	if _, err := waveOf(o); err != nil {
		return err
	}
	if _, err := driftPolicy(&Source{}, o); err != nil {
		return err
	}
	for _, switched := range []struct{ annotation, value string }{
		{gitsource.PruneAnnotation, gitsource.Disabled},
		{gitsource.AdoptAnnotation, gitsource.Enabled},
		{gitsource.RecreateAnnotation, gitsource.Enabled},
	} {
		if v, ok := o.GetAnnotations()[switched.annotation]; ok && v != switched.value {
			return fmt.Errorf("%s: annotation %s: %q is not %q; leave it out otherwise", o.position(),
				switched.annotation, v, switched.value)
		}
	}
	if owner, ok := o.GetAnnotations()[gitsource.SourceAnnotation]; ok {
		return fmt.Errorf("%s: annotation %s: %q is set by the controller; remove it", o.position(),
			gitsource.SourceAnnotation, owner)
	}
	return nil
}

// definedScopes returns the scopes of kinds whose definitions are among the objects.
func definedScopes(objects []Object) map[schema.GroupKind]Scope {
	scopes := map[schema.GroupKind]Scope{}
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" || o.GroupVersionKind().Group != "apiextensions.k8s.io" {
			continue
		}
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		scope, _, _ := unstructured.NestedString(o.Object, "spec", "scope")
		scopes[schema.GroupKind{Group: group, Kind: kind}] = ScopeCluster
		if scope == "Namespaced" {
			scopes[schema.GroupKind{Group: group, Kind: kind}] = ScopeNamespaced
		}
	}
	return scopes
}

// objectDigest is a digest of the content of an object. It is zero if it is not known.
type objectDigest [sha256.Size]byte

// digestOf returns a digest of objects, in any order. It sets the digests of the objects.
func digestOf(objects []Object) (string, error) {
	sums := make([]string, len(objects))
	for i, o := range objects {
		text, err := json.Marshal(o.Object)
		if err != nil {
			return "", fmt.Errorf("%s: encode the object: %w", o.position(), err)
		}
		objects[i].digest = sha256.Sum256(text)
		sums[i] = string(objects[i].digest[:])
	}
	slices.Sort(sums)
	h := sha256.New()
	for _, sum := range sums {
		_, _ = h.Write([]byte(sum)) // never fails
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// DataOf returns the data of a Secret or a ConfigMap.
func DataOf(o *unstructured.Unstructured) (map[string][]byte, error) {
	data := map[string][]byte{}
	for field, isEncoded := range map[string]bool{"data": o.GetKind() == "Secret", "binaryData": true} {
		values, _, err := unstructured.NestedStringMap(o.Object, field)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", field, err)
		}
		for k, text := range values {
			data[k] = []byte(text)
			if isEncoded {
				if data[k], err = base64.StdEncoding.DecodeString(text); err != nil {
					return nil, fmt.Errorf("read %s.%s: it is not base64", field, k)
				}
			}
		}
	}
	return data, nil
}
