package custom

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names maps the names that definitions have accepted to the definition's UID. The cost of a lookup does not depend on
// their number.
type Names map[acceptedName]types.UID

type acceptedName struct {
	group, name string
	isKind      bool // whether it is the name of a kind or list kind, not of a resource
}

// NamesOf returns the accepted names of definitions.
func NamesOf(all []*apiextensionsv1.CustomResourceDefinition) Names {
	n := make(Names, 6*len(all))
	for _, d := range all {
		n.Accept(d, d.Status.AcceptedNames)
	}
	return n
}

// Accept adds names that a definition has accepted.
func (n Names) Accept(
	d *apiextensionsv1.CustomResourceDefinition,
	names apiextensionsv1.CustomResourceDefinitionNames,
) {
	for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
		n.add(acceptedName{d.Spec.Group, name, false}, d.UID)
	}
	n.add(acceptedName{d.Spec.Group, names.Kind, true}, d.UID)
	n.add(acceptedName{d.Spec.Group, names.ListKind, true}, d.UID)
}

// ambiguous marks a name that more than one definition has.
const ambiguous types.UID = ""

func (n Names) add(name acceptedName, of types.UID) {
	if before, ok := n[name]; ok && before != of {
		of = ambiguous
	}
	n[name] = of
}

// isTaken reports whether another definition has a name.
func (n Names) isTaken(d *apiextensionsv1.CustomResourceDefinition, name acceptedName) bool {
	of, ok := n[name]
	return ok && of != d.UID
}

// NewStatus returns a definition's new status, given the names of all definitions. Names that another definition of the
// group has accepted are not accepted. A definition whose names are all accepted is established for good.
func NewStatus(
	d *apiextensionsv1.CustomResourceDefinition,
	all Names,
	now time.Time,
) apiextensionsv1.CustomResourceDefinitionStatus {
	// The schemas are large and not needed, so they are not copied.
	out := &apiextensionsv1.CustomResourceDefinition{Status: *d.Status.DeepCopy()}
	resources := func(name string) bool { return all.isTaken(d, acceptedName{d.Spec.Group, name, false}) }
	taken := func(name string) bool { return all.isTaken(d, acceptedName{d.Spec.Group, name, true}) }
	requested, accepted := d.Spec.Names, &out.Status.AcceptedNames
	condition := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts",
		Message: "no conflicts found",
	}
	refuse := func(reason, name string) {
		condition.Status, condition.Reason, condition.Message = apiextensionsv1.ConditionFalse, reason, `"`+name+`" is already in use`
	}
	acceptName := func(to *string, name, reason string, in func(string) bool) {
		if name != *to && name != "" && in(name) {
			refuse(reason, name)
			return
		}
		*to = name
	}
	acceptName(&accepted.Plural, requested.Plural, "PluralConflict", resources)
	acceptName(&accepted.Singular, requested.Singular, "SingularConflict", resources)
	if i := slices.IndexFunc(requested.ShortNames,
		func(n string) bool { return resources(n) && !slices.Contains(accepted.ShortNames, n) }); i >= 0 {
		refuse("ShortNamesConflict", requested.ShortNames[i])
	} else {
		accepted.ShortNames = slices.Clone(requested.ShortNames)
	}
	acceptName(&accepted.Kind, requested.Kind, "KindConflict", taken)
	acceptName(&accepted.ListKind, requested.ListKind, "ListKindConflict", taken)
	accepted.Categories = slices.Clone(requested.Categories)

	set := func(c apiextensionsv1.CustomResourceDefinitionCondition) {
		old := apihelpers.FindCRDCondition(out, c.Type)
		if old != nil && old.Status == c.Status && old.Reason == c.Reason && old.Message == c.Message {
			return
		}
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		apihelpers.SetCRDCondition(out, c)
	}
	set(condition)
	if c, protected := approvalCondition(d); protected {
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

// approvalCondition returns the condition of a definition in one of Kubernetes' own groups: whether its annotation
// states that the API was approved. protected is false for other groups.
func approvalCondition(
	d *apiextensionsv1.CustomResourceDefinition,
) (c apiextensionsv1.CustomResourceDefinitionCondition, protected bool) {
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
