package device

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Status returns the health of a container's devices, by claim and request. Health that no driver reports is unknown.
func (m *Manager) Status(pod *corev1.Pod, c *corev1.Container) []corev1.ResourceStatus {
	var out []corev1.ResourceStatus
	for _, t := range claimRequests(pod, c) {
		s := corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + t.name)}
		m.eachDevice(pod, t.claim, t.request, func(driver string, d Device) {
			r := corev1.ResourceHealth{
				ResourceID: corev1.ResourceID(driver + "/" + d.Pool + "/" + d.Device),
				Health:     corev1.ResourceHealthStatusUnknown,
			}
			if m.Health != nil {
				var message string
				if r.Health, message = m.Health(driver, d.Pool, d.Device); message != "" {
					r.Message = &message
				}
			}
			if !slices.ContainsFunc(s.Resources,
				func(current corev1.ResourceHealth) bool { return current.ResourceID == r.ResourceID }) {
				s.Resources = append(s.Resources, r)
			}
		})
		if len(s.Resources) == 0 {
			continue
		}
		slices.SortFunc(s.Resources,
			func(a, b corev1.ResourceHealth) int { return cmp.Compare(a.ResourceID, b.ResourceID) })
		// Several extended resources may map to the same request.
		if !slices.ContainsFunc(out, func(current corev1.ResourceStatus) bool { return current.Name == s.Name }) {
			out = append(out, s)
		}
	}
	return out
}

// Users returns the pods that have devices of a driver.
func (m *Manager) Users(driver string) (pods []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.claims {
		if _, ok := one.Drivers[driver]; ok {
			pods = append(pods, one.Pods...)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

// claimRequest is a request of a claim, or all of them, that a container uses, with the name for the container's
// status.
type claimRequest struct{ claim, request, name string }

func claimRequests(pod *corev1.Pod, c *corev1.Container) (all []claimRequest) {
	for _, takes := range c.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims,
			func(p corev1.PodResourceClaim) bool { return p.Name == takes.Name })
		if i < 0 {
			continue
		}
		name, err := claimName(pod, &pod.Spec.ResourceClaims[i])
		if err != nil || name == "" {
			continue
		}
		as := takes.Name
		if takes.Request != "" {
			as += "/" + takes.Request
		}
		all = append(all, claimRequest{name, takes.Request, as})
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for _, r := range s.RequestMappings {
			if q := c.Resources.Requests[corev1.ResourceName(r.ResourceName)]; r.ContainerName == c.Name &&
				!q.IsZero() {
				all = append(all,
					claimRequest{s.ResourceClaimName, r.RequestName, s.ResourceClaimName + "/" + r.RequestName})
			}
		}
	}
	return all
}

// eachDevice calls visit for each device of a pod's claim that was prepared for a request. An empty request means all.
func (m *Manager) eachDevice(pod *corev1.Pod, name, request string, visit func(driver string, d Device)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.claims {
		if one.Namespace != pod.Namespace || one.Name != name || !slices.Contains(one.Pods, pod.UID) {
			continue
		}
		for _, driver := range slices.Sorted(maps.Keys(one.Drivers)) {
			for _, d := range one.Drivers[driver] {
				if d.isFor(request) {
					visit(driver, d)
				}
			}
		}
	}
}
