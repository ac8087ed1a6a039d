package custom

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Names are those that definitions have accepted, with who has: looking one up costs the same however many there are.
type Names map[named]types.UID

type named struct {
	group, name string
	kind        bool // or a list's kind; else a resource's
}

// NamesOf returns the names that definitions have.
func NamesOf(all []*apiextensionsv1.CustomResourceDefinition) Names {
	n := make(Names, 6*len(all))
	for _, d := range all {
		n.Accept(d, d.Status.AcceptedNames)
	}
	return n
}

// Accept adds those that a definition has from now on.
func (n Names) Accept(
	d *apiextensionsv1.CustomResourceDefinition,
	names apiextensionsv1.CustomResourceDefinitionNames,
) {
	for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
		n.add(named{d.Spec.Group, name, false}, d.UID)
	}
	n.add(named{d.Spec.Group, names.Kind, true}, d.UID)
	n.add(named{d.Spec.Group, names.ListKind, true}, d.UID)
}

// several stands for more than one definition with the same name.
const several types.UID = ""

func (n Names) add(name named, of types.UID) {
	if was, there := n[name]; there && was != of {
		of = several
	}
	n[name] = of
}

// taken says whether another definition has a name.
func (n Names) taken(d *apiextensionsv1.CustomResourceDefinition, name named) bool {
	of, there := n[name]
	return there && of != d.UID
}

// Judge returns a definition's status as the names of all definitions let it be:
// names that another one of the group has accepted before are not accepted, and a
// definition whose names are all accepted is established for good.
func Judge(
	d *apiextensionsv1.CustomResourceDefinition,
	all Names,
	now time.Time,
) apiextensionsv1.CustomResourceDefinitionStatus {
	// Its schemas are large, and no part of this.
	out := &apiextensionsv1.CustomResourceDefinition{Status: *d.Status.DeepCopy()}
	resources := func(name string) bool { return all.taken(d, named{d.Spec.Group, name, false}) }
	taken := func(name string) bool { return all.taken(d, named{d.Spec.Group, name, true}) }
	asked, accepted := d.Spec.Names, &out.Status.AcceptedNames
	condition := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts",
		Message: "no conflicts found",
	}
	refuse := func(reason, name string) {
		condition.Status, condition.Reason, condition.Message = apiextensionsv1.ConditionFalse, reason, `"`+name+`" is already in use`
	}
	settle := func(to *string, name, reason string, in func(string) bool) {
		if name != *to && name != "" && in(name) {
			refuse(reason, name)
			return
		}
		*to = name
	}
	settle(&accepted.Plural, asked.Plural, "PluralConflict", resources)
	settle(&accepted.Singular, asked.Singular, "SingularConflict", resources)
	if i := slices.IndexFunc(asked.ShortNames,
		func(n string) bool { return resources(n) && !slices.Contains(accepted.ShortNames, n) }); i >= 0 {
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

// approval says of a definition in a group of Kubernetes' own whether those who keep its API have agreed, as the
// definition's annotation tells.
func approval(
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
