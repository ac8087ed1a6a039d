package gitops

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/config/gitsource"
)

// Source is a GitSource.
type Source struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              gitsource.Spec   `json:"spec"`
	Status            gitsource.Status `json:"status,omitempty"`

	// Requested is the number of requests by webhooks when the controller read the source.
	Requested int64 `json:"-"`
}

// SourceOf decodes a GitSource.
func SourceOf(o *unstructured.Unstructured) (*Source, error) {
	s := &Source{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, s); err != nil {
		return nil, fmt.Errorf("decode GitSource %s/%s: %w", o.GetNamespace(), o.GetName(), err)
	}
	return s, nil
}

// Key returns the source's key.
func (s *Source) Key() Key { return Key{Namespace: s.Namespace, Name: s.Name} }

// Account returns the name of the service account that the source acts as.
func (s *Source) Account() string { return s.Spec.AccountIn(s.Namespace) }

// owner returns the value of the annotation on the source's objects.
func (s *Source) owner() string { return s.Namespace + "/" + s.Name }

// DefaultNamespace returns the namespace of objects that name none.
func (s *Source) DefaultNamespace() string {
	switch {
	case s.Spec.TargetNamespace != "":
		return s.Spec.TargetNamespace
	case s.Namespace == gitsource.Namespace:
		return metav1.NamespaceDefault
	}
	return s.Namespace
}

// dependencies returns the keys of the sources in dependsOn.
func (s *Source) dependencies() (keys []Key) {
	for _, d := range s.Spec.DependsOn {
		k := Key{Namespace: d.Namespace, Name: d.Name}
		if k.Namespace == "" {
			k.Namespace = s.Namespace
		}
		keys = append(keys, k)
	}
	return keys
}

// follows reports whether two sources follow the same revisions of one repository.
func (s *Source) follows(other *Source) bool {
	a, b := &s.Spec, &other.Spec
	return a.URL == b.URL && a.Branch == b.Branch && a.Tag == b.Tag && a.Semver == b.Semver && a.Commit == b.Commit &&
		a.Digest == b.Digest && a.IsHelmRepository() == b.IsHelmRepository() &&
		(!a.IsHelmRepository() || a.Helm.Chart == b.Helm.Chart && a.Helm.Version == b.Helm.Version)
}

// specDigest returns a digest of the fields of a spec that determine the objects.
func specDigest(spec *gitsource.Spec) string {
	text, err := json.Marshal([]any{spec.URL, spec.Branch, spec.Tag, spec.Semver, spec.Commit, spec.Path, spec.Renderer,
		spec.TargetNamespace, spec.Helm, spec.Digest})
	if err != nil { // values from JSON can be encoded
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// isReady reports whether a source has applied what its present spec declares, and whether its objects are healthy.
func (s *Source) isReady() bool {
	return s.DeletionTimestamp == nil && s.Status.ObservedGeneration == s.Generation &&
		conditionStatus(s.Status.Conditions, gitsource.ConditionReady) == metav1.ConditionTrue
}
