// Package v2 is the version of a Site that the tests' operator works with. It has the content of v1 in other fields.
package v2

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"

	v1 "clusterctl/tests/programs/operator/v1"
)

// GroupVersion is the group and version of the types.
var GroupVersion = schema.GroupVersion{Group: "operator.example.com", Version: "v2"}

// Site is a web site.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec   `json:"spec,omitempty"`
	Status            SiteStatus `json:"status,omitempty"`
}

// SiteSpec is the desired state.
type SiteSpec struct {
	Container Container `json:"container"`
	Replicas  int32     `json:"replicas,omitempty"`
	Text      string    `json:"text,omitempty"`
}

// Container is the container of a site.
type Container struct {
	Image string `json:"image"`
}

// SiteStatus is the observed state.
type SiteStatus struct {
	Ready int32 `json:"ready"`
}

// SiteList is a list of sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

// ConvertTo implements conversion.Convertible.
func (s *Site) ConvertTo(hub conversion.Hub) error {
	to, ok := hub.(*v1.Site)
	if !ok {
		return fmt.Errorf("a %T is no Site", hub)
	}
	to.ObjectMeta = s.ObjectMeta
	to.Spec = v1.SiteSpec{Image: s.Spec.Container.Image, Replicas: s.Spec.Replicas, Message: s.Spec.Text}
	to.Status = v1.SiteStatus(s.Status)
	return nil
}

// ConvertFrom implements conversion.Convertible.
func (s *Site) ConvertFrom(hub conversion.Hub) error {
	from, ok := hub.(*v1.Site)
	if !ok {
		return fmt.Errorf("a %T is no Site", hub)
	}
	s.ObjectMeta = from.ObjectMeta
	s.Spec = SiteSpec{
		Container: Container{Image: from.Spec.Image},
		Replicas:  from.Spec.Replicas,
		Text:      from.Spec.Message,
	}
	s.Status = SiteStatus(from.Status)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (s *Site) DeepCopyObject() runtime.Object {
	out := *s
	out.ObjectMeta = *s.ObjectMeta.DeepCopy()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *SiteList) DeepCopyObject() runtime.Object {
	out := *l
	out.ListMeta = *l.ListMeta.DeepCopy()
	out.Items = make([]Site, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Site)
	}
	return &out
}

// Add adds the types to a scheme.
func Add(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
