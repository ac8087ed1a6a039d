// Package v1 is the version of a Site that the tests' operator stores.
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the types.
var GroupVersion = schema.GroupVersion{Group: "operator.example.com", Version: "v1"}

// Site is a web site.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec   `json:"spec,omitempty"`
	Status            SiteStatus `json:"status,omitempty"`
}

// SiteSpec is the desired state.
type SiteSpec struct {
	Image    string `json:"image"`
	Replicas int32  `json:"replicas,omitempty"`
	Message  string `json:"message,omitempty"`
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

// Hub marks this version as the one through which others are converted.
func (*Site) Hub() {}

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
