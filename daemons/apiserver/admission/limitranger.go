package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"

	"clusterctl/daemons/api"
)

// limitRanger sets a namespace's default requests and limits on containers, and refuses values outside its bounds.
type limitRanger struct{ objects api.Objects }

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

func (p *limitRanger) ranges(namespace string) []*corev1.LimitRange {
	var out []*corev1.LimitRange
	for _, obj := range p.objects.List(limitRangesGR, namespace) {
		out = append(out, obj.(*corev1.LimitRange))
	}
	slices.SortFunc(out, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Admit sets the defaults that containers lack.
func (p *limitRanger) Admit(_ context.Context, a *api.Admission) error {
	if !isOperation(a, "CREATE", podsGR) {
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var set []string
	for _, r := range p.ranges(a.Namespace) {
		for _, limit := range r.Spec.Limits {
			if limit.Type != corev1.LimitTypeContainer {
				continue
			}
			for i := range pod.Spec.InitContainers {
				set = append(set, applyDefaults(&pod.Spec.InitContainers[i], limit, "init container")...)
			}
			for i := range pod.Spec.Containers {
				set = append(set, applyDefaults(&pod.Spec.Containers[i], limit, "container")...)
			}
		}
	}
	if len(set) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(set, "; ")
	}
	return nil
}

func applyDefaults(c *corev1.Container, limit corev1.LimitRangeItem, noun string) []string {
	var notes []string
	add := func(list *corev1.ResourceList, defaults corev1.ResourceList, word string) {
		var names []string
		for name, q := range defaults {
			if _, ok := (*list)[name]; ok {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = q.DeepCopy()
			names = append(names, string(name))
		}
		if len(names) > 0 {
			slices.Sort(names)
			notes = append(notes, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), word, noun, c.Name))
		}
	}
	// A limit without a request also sets the request, before any default request does.
	for name, q := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; !ok {
			if c.Resources.Requests == nil {
				c.Resources.Requests = corev1.ResourceList{}
			}
			c.Resources.Requests[name] = q.DeepCopy()
		}
	}
	add(&c.Resources.Requests, limit.DefaultRequest, "request")
	add(&c.Resources.Limits, limit.Default, "limit")
	return notes
}

// Validate refuses pods and claims outside the bounds, and reports all violations together.
func (p *limitRanger) Validate(_ context.Context, a *api.Admission) error {
	var errs []error
	switch {
	case isOperation(a, "CREATE", podsGR),
		a.Operation == "UPDATE" && a.Subresource == "resize" && a.Resource.GroupResource() == podsGR:
		pod, ok := a.Object.(*corev1.Pod)
		if !ok {
			return nil
		}
		for _, r := range p.ranges(a.Namespace) {
			for _, limit := range r.Spec.Limits {
				errs = append(errs, checkPodBounds(pod, limit)...)
			}
		}
	case isOperation(a, "CREATE", claimsGR) || isOperation(a, "UPDATE", claimsGR):
		claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
		if !ok {
			return nil
		}
		for _, r := range p.ranges(a.Namespace) {
			for _, limit := range r.Spec.Limits {
				if limit.Type == corev1.LimitTypePersistentVolumeClaim {
					errs = append(errs, checkClaim(limit, claim.Spec.Resources.Requests)...)
				}
			}
		}
	}
	if len(errs) > 0 {
		return forbidden(a, utilerrors.NewAggregate(errs[:min(len(errs), api.MaxCauses)]))
	}
	return nil
}

// checkClaim compares the requests of a claim with the bounds. Its limits do not count.
func checkClaim(limit corev1.LimitRangeItem, requests corev1.ResourceList) []error {
	const noun = string(corev1.LimitTypePersistentVolumeClaim)
	errs := checkBounds(noun, corev1.LimitRangeItem{Min: limit.Min}, requests, nil)
	for _, name := range sortedNames(limit.Max) {
		top := limit.Max[name]
		switch request, ok := requests[name]; {
		case !ok:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, noun,
				top.String()))
		case request.Cmp(top) > 0:
			errs = append(errs, fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, noun, top.String(),
				request.String()))
		}
	}
	return errs
}

func checkPodBounds(pod *corev1.Pod, limit corev1.LimitRangeItem) []error {
	var errs []error
	switch limit.Type {
	case corev1.LimitTypeContainer:
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			errs = append(errs, checkBounds(string(limit.Type), limit, c.Resources.Requests, c.Resources.Limits)...)
		}
	case corev1.LimitTypePod:
		errs = checkBounds(string(limit.Type), limit, resourcehelper.PodRequests(pod,
			resourcehelper.PodResourcesOptions{}), resourcehelper.PodLimits(pod, resourcehelper.PodResourcesOptions{}))
	}
	return errs
}

// checkBounds compares requests with the minima, limits with the maxima, and both with each other.
func checkBounds(noun string, limit corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, name := range sortedNames(limit.Min) {
		minimum := limit.Min[name]
		request, hasRequest := requests[name]
		maximum, hasLimit := limits[name]
		switch {
		case !hasRequest:
			refuse("minimum %s usage per %s is %s.  No request is specified", name, noun, minimum.String())
		case request.Cmp(minimum) < 0:
			refuse("minimum %s usage per %s is %s, but request is %s", name, noun, minimum.String(), request.String())
		case hasLimit && maximum.Cmp(minimum) < 0:
			refuse("minimum %s usage per %s is %s, but limit is %s", name, noun, minimum.String(), maximum.String())
		}
	}
	for _, name := range sortedNames(limit.Max) {
		top := limit.Max[name]
		request, hasRequest := requests[name]
		maximum, hasLimit := limits[name]
		switch {
		case !hasLimit:
			refuse("maximum %s usage per %s is %s.  No limit is specified", name, noun, top.String())
		case maximum.Cmp(top) > 0:
			refuse("maximum %s usage per %s is %s, but limit is %s", name, noun, top.String(), maximum.String())
		case hasRequest && request.Cmp(top) > 0:
			refuse("maximum %s usage per %s is %s, but request is %s", name, noun, top.String(), request.String())
		}
	}
	for _, name := range sortedNames(limit.MaxLimitRequestRatio) {
		ratio := limit.MaxLimitRequestRatio[name]
		request, maximum := requests[name], limits[name]
		switch {
		case request.IsZero():
			refuse("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name,
				noun, ratio.String())
		case maximum.IsZero():
			refuse("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, noun,
				ratio.String())
		default:
			if got := float64(maximum.MilliValue()) / float64(request.MilliValue()); got > float64(
				ratio.MilliValue(),
			)/1000 {
				refuse("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, noun,
					ratio.String(), got)
			}
		}
	}
	return errs
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
