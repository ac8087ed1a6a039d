package custom

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Judge returns a definition's status as the names of all definitions let it be:
// names that another one of the group has accepted before are not accepted, and a
// definition whose names are all accepted is established for good.
func Judge(d *apiextensionsv1.CustomResourceDefinition, all []*apiextensionsv1.CustomResourceDefinition, now time.Time) apiextensionsv1.CustomResourceDefinitionStatus {
	out := d.DeepCopy()
	resources, taken := map[string]bool{}, map[string]bool{}
	for _, other := range all {
		if other.Spec.Group != d.Spec.Group || other.UID == d.UID {
			continue
		}
		names := other.Status.AcceptedNames
		for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
			resources[name] = true
		}
		taken[names.Kind], taken[names.ListKind] = true, true
	}
	asked, accepted := d.Spec.Names, &out.Status.AcceptedNames
	condition := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
	}
	refuse := func(reason, name string) {
		condition.Status, condition.Reason, condition.Message = apiextensionsv1.ConditionFalse, reason, `"`+name+`" is already in use`
	}
	settle := func(to *string, name, reason string, in map[string]bool) {
		if name != *to && name != "" && in[name] {
			refuse(reason, name)
			return
		}
		*to = name
	}
	settle(&accepted.Plural, asked.Plural, "PluralConflict", resources)
	settle(&accepted.Singular, asked.Singular, "SingularConflict", resources)
	if i := slices.IndexFunc(asked.ShortNames, func(n string) bool { return resources[n] && !slices.Contains(accepted.ShortNames, n) }); i >= 0 {
		refuse("ShortNamesConflict", asked.ShortNames[i])
	} else {
		accepted.ShortNames = slices.Clone(asked.ShortNames)
	}
	settle(&accepted.Kind, asked.Kind, "KindConflict", taken)
	settle(&accepted.ListKind, asked.ListKind, "ListKindConflict", taken)
	accepted.Categories = slices.Clone(asked.Categories)

	set := func(c apiextensionsv1.CustomResourceDefinitionCondition) {
		old := apihelpers.FindCRDCondition(out, c.Type)
		if old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return
		}
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		apihelpers.SetCRDCondition(out, c)
	}
	set(condition)
	if c, protected := approval(d); protected {
		set(c)
	}
	switch {
	case apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established):
	case condition.Status == apiextensionsv1.ConditionTrue:
		set(apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue,
			Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
		})
	default:
		set(apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse,
			Reason: "NotAccepted", Message: "not all names are accepted",
		})
	}
	if d.DeletionTimestamp != nil {
		set(apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue,
			Reason: "InstanceDeletionInProgress", Message: "CustomResource deletion is in progress",
		})
	}
	return out.Status
}

// approval says of a definition in a group of Kubernetes' own whether those who keep its API have agreed, as the definition's
// annotation tells.
func approval(d *apiextensionsv1.CustomResourceDefinition) (c apiextensionsv1.CustomResourceDefinitionCondition, protected bool) {
	if !apihelpers.IsProtectedCommunityGroup(d.Spec.Group) {
		return c, false
	}
	c.Type, c.Status = apiextensionsv1.KubernetesAPIApprovalPolicyConformant, apiextensionsv1.ConditionFalse
	var state apihelpers.APIApprovalState
	switch state, c.Message = apihelpers.GetAPIApprovalState(d.Annotations); state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	default:
		c.Reason = "InvalidAnnotation"
	}
	return c, true
}
