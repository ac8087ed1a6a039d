// Package auth declares the kinds of authentication and authorization: certificate requests, trust bundles, roles,
// bindings and reviews.
package auth

import (
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
	"clusterctl/daemons/kinds/value"
)

func formatCreated(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

func Roles() *kind.Kind {
	return &kind.Kind{
		GVK:      rbacv1.SchemeGroupVersion.WithKind("Role"),
		Resource: "roles", Singular: "role", Namespaced: true, NameErrors: validate.PathSegmentNameErrors,
		CreateOnUpdate: true,
		New:            kind.New[rbacv1.Role](), NewList: kind.New[rbacv1.RoleList](),
		Validate: kind.AdaptValidate(func(r *rbacv1.Role) field.ErrorList { return validateRules(r.Rules, true) }),
		Columns:  kind.NewColumns("Created At"),
		Row:      kind.AdaptRow(func(r *rbacv1.Role) []any { return []any{formatCreated(r.CreationTimestamp)} }),
	}
}

func ClusterRoles() *kind.Kind {
	return &kind.Kind{
		GVK:      rbacv1.SchemeGroupVersion.WithKind("ClusterRole"),
		Resource: "clusterroles", Singular: "clusterrole", NameErrors: validate.PathSegmentNameErrors,
		CreateOnUpdate: true,
		New:            kind.New[rbacv1.ClusterRole](), NewList: kind.New[rbacv1.ClusterRoleList](),
		Validate: kind.AdaptValidate(func(r *rbacv1.ClusterRole) field.ErrorList {
			errs := validateRules(r.Rules, false)
			if r.AggregationRule != nil {
				path := field.NewPath("aggregationRule", "clusterRoleSelectors")
				if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
					errs = append(errs, field.Required(path,
						"at least one clusterRoleSelector required if aggregationRule is non-nil"))
				}
				for i := range r.AggregationRule.ClusterRoleSelectors {
					errs = append(errs, metavalidation.ValidateLabelSelector(&r.AggregationRule.ClusterRoleSelectors[i],
						metavalidation.LabelSelectorValidationOptions{}, path.Index(i))...)
				}
			}
			return errs
		}),
		Columns: kind.NewColumns("Created At"),
		Row:     kind.AdaptRow(func(r *rbacv1.ClusterRole) []any { return []any{formatCreated(r.CreationTimestamp)} }),
	}
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, r := range rules {
		path := field.NewPath("rules").Index(i)
		if len(r.Verbs) == 0 {
			errs = append(errs, field.Required(path.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(r.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), r.NonResourceURLs,
					"namespaced rules cannot apply to non-resource URLs"))
			}
			if len(r.APIGroups)+len(r.Resources)+len(r.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(path.Child("nonResourceURLs"), r.NonResourceURLs,
					"rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(path.Child("apiGroups"),
				"resource rules must supply at least one api group"))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(path.Child("resources"),
				"resource rules must supply at least one resource"))
		}
	}
	return errs
}

func RoleBindings() *kind.Kind {
	return &kind.Kind{
		GVK:      rbacv1.SchemeGroupVersion.WithKind("RoleBinding"),
		Resource: "rolebindings", Singular: "rolebinding", Namespaced: true, NameErrors: validate.PathSegmentNameErrors,
		CreateOnUpdate: true,
		New:            kind.New[rbacv1.RoleBinding](), NewList: kind.New[rbacv1.RoleBindingList](),
		Default: kind.Adapt(func(b *rbacv1.RoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }),
		Validate: kind.AdaptValidate(func(b *rbacv1.RoleBinding) field.ErrorList {
			return validateRoleBinding(b.RoleRef, b.Subjects, []string{"Role", "ClusterRole"}, true)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(b, old *rbacv1.RoleBinding) field.ErrorList {
			return append(validateRoleBinding(b.RoleRef, b.Subjects, []string{"Role", "ClusterRole"}, true),
				validateSameRole(b.RoleRef, old.RoleRef)...)
		}),
		Columns: kind.NewColumns("Role", "Age", "Users*", "Groups*", "ServiceAccounts*"),
		Row: kind.AdaptRow(
			func(b *rbacv1.RoleBinding) []any { return bindingRow(b.RoleRef, b.Subjects, b.CreationTimestamp) },
		),
	}
}

func ClusterRoleBindings() *kind.Kind {
	return &kind.Kind{
		GVK:      rbacv1.SchemeGroupVersion.WithKind("ClusterRoleBinding"),
		Resource: "clusterrolebindings", Singular: "clusterrolebinding", NameErrors: validate.PathSegmentNameErrors,
		CreateOnUpdate: true,
		New:            kind.New[rbacv1.ClusterRoleBinding](), NewList: kind.New[rbacv1.ClusterRoleBindingList](),
		Default: kind.Adapt(func(b *rbacv1.ClusterRoleBinding) { defaultBinding(&b.RoleRef, b.Subjects) }),
		Validate: kind.AdaptValidate(func(b *rbacv1.ClusterRoleBinding) field.ErrorList {
			return validateRoleBinding(b.RoleRef, b.Subjects, []string{"ClusterRole"}, false)
		}),
		ValidateUpdate: kind.AdaptValidateUpdate(func(b, old *rbacv1.ClusterRoleBinding) field.ErrorList {
			return append(validateRoleBinding(b.RoleRef, b.Subjects, []string{"ClusterRole"}, false),
				validateSameRole(b.RoleRef, old.RoleRef)...)
		}),
		Columns: kind.NewColumns("Role", "Age", "Users*", "Groups*", "ServiceAccounts*"),
		Row: kind.AdaptRow(func(b *rbacv1.ClusterRoleBinding) []any {
			return bindingRow(b.RoleRef, b.Subjects, b.CreationTimestamp)
		}),
	}
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	value.SetEmpty(&ref.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if subjects[i].Kind == rbacv1.UserKind || subjects[i].Kind == rbacv1.GroupKind {
			value.SetEmpty(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func validateSameRole(ref, old rbacv1.RoleRef) field.ErrorList {
	if ref != old {
		return field.ErrorList{field.Invalid(field.NewPath("roleRef"), ref, "cannot change roleRef")}
	}
	return nil
}

func validateRoleBinding(
	ref rbacv1.RoleRef,
	subjects []rbacv1.Subject,
	kinds []string,
	namespaced bool,
) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, validate.NotSupported(path.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	if !slices.Contains(kinds, ref.Kind) {
		errs = append(errs, validate.NotSupported(path.Child("kind"), ref.Kind, kinds))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	} else {
		errs = append(errs, validate.Invalid(path.Child("name"), ref.Name,
			validate.PathSegmentNameErrors(ref.Name, false))...)
	}
	for i, s := range subjects {
		at := field.NewPath("subjects").Index(i)
		if s.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		}
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			if s.Name != "" {
				errs = append(errs,
					validate.Invalid(at.Child("name"), s.Name, validation.IsDNS1123Subdomain(s.Name))...)
			}
			if s.APIGroup != "" {
				errs = append(errs, validate.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{""}))
			}
			if !namespaced && s.Namespace == "" {
				errs = append(errs, field.Required(at.Child("namespace"), ""))
			}
		case rbacv1.UserKind, rbacv1.GroupKind:
			if s.APIGroup != rbacv1.GroupName {
				errs = append(errs, validate.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{rbacv1.GroupName}))
			}
		default:
			errs = append(errs, validate.NotSupported(at.Child("kind"), s.Kind,
				[]string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
		}
	}
	return errs
}

func bindingRow(ref rbacv1.RoleRef, subjects []rbacv1.Subject, made metav1.Time) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{
		ref.Kind + "/" + ref.Name, cell.Age(made),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", "),
	}
}
