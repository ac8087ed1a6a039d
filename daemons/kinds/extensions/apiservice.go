package extensions

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"clusterctl/daemons/kinds/cell"
	"clusterctl/daemons/kinds/kind"
	"clusterctl/daemons/kinds/validate"
)

// APIServices declares APIServices, which delegate group versions to other API servers.
func APIServices() *kind.Kind {
	type service = *apiregistrationv1.APIService
	return &kind.Kind{
		GVK:      apiregistrationv1.SchemeGroupVersion.WithKind("APIService"),
		Resource: "apiservices", Singular: "apiservice", Categories: []string{"api-extensions"},
		ConditionalUpdate: true,
		StorageKey:        "apiregistration.k8s.io/apiservices",
		New:               kind.New[apiregistrationv1.APIService](),
		NewList:           kind.New[apiregistrationv1.APIServiceList](),
		NameErrors:        path.ValidatePathSegmentName,
		Default: kind.Adapt(func(s service) {
			if s.Spec.Service != nil {
				setIfNil(&s.Spec.Service.Port, 443)
			}
		}),
		PrepareCreate: kind.Adapt(func(s service) {
			if s.Status = (apiregistrationv1.APIServiceStatus{}); s.Spec.Service == nil {
				s.Status.Conditions = []apiregistrationv1.APIServiceCondition{LocalAPIService(metav1.Now())}
			}
		}),
		Validate:       kind.AdaptValidate(validateAPIService),
		ValidateUpdate: kind.AdaptValidateUpdate(func(s, _ service) field.ErrorList { return validateAPIService(s) }),
		Status: kind.NewStatus(func(to, from service) { to.Status = *from.Status.DeepCopy() },
			validateAPIServiceStatus).WithKeptMeta(),
		Columns: kind.NewColumns("Service", "Available", "Age"),
		Row: kind.AdaptRow(func(s service) []any {
			where, available := "Local", "Unknown"
			if s.Spec.Service != nil {
				where = s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
			}
			for _, c := range s.Status.Conditions {
				if c.Type != apiregistrationv1.Available {
					continue
				}
				available = string(c.Status)
				if c.Status != apiregistrationv1.ConditionTrue {
					available = fmt.Sprintf("%s (%s)", c.Status, c.Reason)
				}
			}
			return []any{where, available, cell.Age(s.CreationTimestamp)}
		}),
	}
}

// LocalAPIService returns the condition of a group version that this server serves itself.
func LocalAPIService(since metav1.Time) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: since,
		Reason: "Local", Message: "Local APIServices are always available",
	}
}

func validateAPIService(s *apiregistrationv1.APIService) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	if want := s.Spec.Version + "." + s.Spec.Group; s.Name != want {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), s.Name, fmt.Sprintf(
			"must be `spec.version+\".\"+spec.group`: %q", want)))
	}
	if s.Spec.Group == "" {
		if s.Spec.Version != "v1" {
			errs = append(errs, field.Required(at.Child("group"),
				"only v1 may have an empty group and it better be legacy kube"))
		}
	} else {
		for _, reason := range utilvalidation.IsDNS1123Subdomain(s.Spec.Group) {
			errs = append(errs, field.Invalid(at.Child("group"), s.Spec.Group, reason))
		}
	}
	for _, reason := range utilvalidation.IsDNS1035Label(s.Spec.Version) {
		errs = append(errs, field.Invalid(at.Child("version"), s.Spec.Version, reason))
	}
	if p := s.Spec.GroupPriorityMinimum; p <= 0 || p > 20000 {
		errs = append(errs, field.Invalid(at.Child("groupPriorityMinimum"), p, "must be positive and less than 20000"))
	}
	if p := s.Spec.VersionPriority; p <= 0 || p > 1000 {
		errs = append(errs, field.Invalid(at.Child("versionPriority"), p, "must be positive and less than 1000"))
	}
	if s.Spec.Service == nil {
		if len(s.Spec.CABundle) != 0 {
			errs = append(errs, field.Invalid(at.Child("caBundle"), fmt.Sprintf("%d bytes", len(s.Spec.CABundle)),
				"local APIServices may not have a caBundle"))
		}
		if s.Spec.InsecureSkipTLSVerify {
			errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), s.Spec.InsecureSkipTLSVerify,
				"local APIServices may not have insecureSkipTLSVerify"))
		}
		return errs
	}
	if s.Spec.Service.Namespace == "" {
		errs = append(errs, field.Required(at.Child("service", "namespace"), ""))
	}
	if s.Spec.Service.Name == "" {
		errs = append(errs, field.Required(at.Child("service", "name"), ""))
	}
	if p := s.Spec.Service.Port; p != nil && (*p < 1 || *p > 65535) {
		errs = append(errs, field.Invalid(at.Child("service", "port"), *p, "must be between 1 and 65535, inclusive"))
	}
	if s.Spec.InsecureSkipTLSVerify && len(s.Spec.CABundle) > 0 {
		errs = append(errs, field.Invalid(at.Child("insecureSkipTLSVerify"), s.Spec.InsecureSkipTLSVerify,
			"may not be true if caBundle is present"))
	}
	return errs
}

func validateAPIServiceStatus(s, _ *apiregistrationv1.APIService) field.ErrorList {
	supported := []apiregistrationv1.ConditionStatus{
		apiregistrationv1.ConditionFalse,
		apiregistrationv1.ConditionTrue,
		apiregistrationv1.ConditionUnknown,
	}
	var errs field.ErrorList
	for i, c := range s.Status.Conditions {
		if !slices.Contains(supported, c.Status) {
			errs = append(errs, validate.NotSupported(field.NewPath("status", "conditions").Index(i).Child("status"),
				c.Status, supported))
		}
	}
	return errs
}
