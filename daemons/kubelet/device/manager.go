// Package device asks the drivers on this machine to prepare the devices of pods' claims before containers start. It
// asks them to unprepare the devices after the pods have ended. It records the prepared claims in a file, so that a
// restarted kubelet unprepares them. The scheduler has decided which devices a claim gets; the kubelet decides when to
// prepare.
package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Timeout limits one call to a driver.
const Timeout = 45 * time.Second

// Plugins calls the drivers of this machine.
type Plugins interface {
	// Prepare asks a driver to prepare claims. It returns the prepared devices and the errors by claim UID.
	Prepare(ctx context.Context, driver string, claims []Claim) (map[types.UID][]Device, map[types.UID]error, error)
	// Unprepare reverses Prepare. A claim that the driver does not know is not an error.
	Unprepare(ctx context.Context, driver string, claim Claim) error
}

// Claim identifies a claim.
type Claim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// Device is a prepared device.
type Device struct {
	Requests []string `json:"requests,omitempty"` // names of the claim's requests; none means all
	Pool     string   `json:"pool,omitempty"`
	Device   string   `json:"device,omitempty"`
	CDI      []string `json:"cdi,omitempty"` // device names of the Container Device Interface
}

// Manager prepares each claim once, even if several pods use it.
type Manager struct {
	Dir       string  // directory of the record
	Plugins   Plugins // nil on simulated nodes
	ReadClaim func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// Health returns the last reported health of a device with its message. Nil means that health is unknown.
	Health func(driver, pool, device string) (corev1.ResourceHealthStatus, string)

	saveMutex sync.Mutex // serializes writes of the record
	mu        sync.Mutex // guards the fields that follow
	claims    map[types.UID]*preparedClaim
}

// preparedClaim is the state of a claim: the pods that use it, and the drivers that have prepared it or may have.
type preparedClaim struct {
	Claim
	Pods    []types.UID         `json:"pods"`
	Drivers map[string][]Device `json:"drivers"`
	Done    bool                `json:"done"` // every driver has prepared the claim

	driverLock sync.Mutex // held during calls to drivers about the claim; locked before Manager.mu
}

// Load reads the record of the previous kubelet.
func (m *Manager) Load() error {
	all, err := readRecord(filepath.Join(m.Dir, recordName))
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.claims = all
	return nil
}

// Prepare prepares all claims of a pod. It can be repeated. Drivers are called in parallel. A pod waits for another pod
// only if both use the same claim.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if m.isPrepared(pod) {
		return nil
	}
	uses, err := usesOf(pod)
	if err != nil {
		return err
	}
	var mine []*preparedClaim
	for _, u := range uses {
		claim, err := m.readClaim(ctx, pod, u)
		if err != nil {
			return err
		}
		mine = append(mine, m.recordUse(pod.UID, claim))
	}
	// Lock in a fixed order to prevent deadlocks.
	slices.SortFunc(mine, func(a, b *preparedClaim) int { return cmp.Compare(a.UID, b.UID) })
	mine = slices.Compact(mine)
	byDriver := map[string][]*preparedClaim{}
	for _, one := range mine {
		one.driverLock.Lock()
		defer one.driverLock.Unlock()
		m.mu.Lock()
		if !one.Done {
			for driver := range one.Drivers {
				byDriver[driver] = append(byDriver[driver], one)
			}
		}
		m.mu.Unlock()
	}
	if len(byDriver) == 0 {
		return m.save()
	}
	// Record the claims first: whatever a driver may have prepared must be unprepared later.
	if err := m.save(); err != nil {
		return err
	}
	var asking sync.WaitGroup
	var errs []error // guarded by m.mu
	failed := map[*preparedClaim]bool{}
	for driver, claims := range byDriver {
		asking.Go(func() {
			got, refused, err := m.callDriver(ctx, driver, claims)
			m.mu.Lock()
			defer m.mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("driver %s: %w", driver, err))
			}
			for _, c := range claims {
				devices, ok := got[c.UID]
				if cause := refused[c.UID]; cause != nil {
					errs = append(errs, fmt.Errorf("driver %s: claim %s/%s: %w", driver, c.Namespace, c.Name, cause))
				} else if err == nil && !ok {
					errs = append(errs, fmt.Errorf("driver %s said nothing about claim "+
						"%s/%s", driver, c.Namespace, c.Name))
				}
				failed[c] = failed[c] || !ok
				c.Drivers[driver] = devices
			}
		})
	}
	asking.Wait()
	m.mu.Lock()
	for c, isFailed := range failed {
		c.Done = !isFailed
	}
	m.mu.Unlock()
	return errors.Join(append(errs, m.save())...)
}

// isPrepared reports whether all claims of a pod are prepared for it.
func (m *Manager) isPrepared(pod *corev1.Pod) bool {
	existing := map[string]bool{}
	m.mu.Lock()
	for _, one := range m.claims {
		if one.Done && slices.Contains(one.Pods, pod.UID) {
			existing[one.Name] = true
		}
	}
	m.mu.Unlock()
	uses, err := usesOf(pod)
	return err == nil && !slices.ContainsFunc(uses, func(u claimUse) bool { return !existing[u.claim] })
}

// claimUse is a claim that a pod uses.
type claimUse struct {
	claim   string
	isOwned bool // it was created for the pod
}

// usesOf returns the claims that a pod uses: those of spec.resourceClaims, and the one for its extended resources.
func usesOf(pod *corev1.Pod) ([]claimUse, error) {
	var out []claimUse
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		name, err := claimName(pod, c)
		if err != nil {
			return nil, err
		}
		if name != "" {
			out = append(out, claimUse{name, c.ResourceClaimName == nil})
		}
	}
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		out = append(out, claimUse{s.ResourceClaimName, true})
	}
	return out, nil
}

func (m *Manager) callDriver(
	ctx context.Context,
	driver string,
	claims []*preparedClaim,
) (map[types.UID][]Device, map[types.UID]error, error) {
	requests := make([]Claim, 0, len(claims))
	pretended := map[types.UID][]Device{}
	for _, c := range claims {
		requests = append(requests, c.Claim)
		pretended[c.UID] = nil
	}
	if m.Plugins == nil {
		return pretended, nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	return m.Plugins.Prepare(ctx, driver, requests)
}

// readClaim reads a claim of a pod. It returns an error unless the claim is allocated and reserved for the pod.
func (m *Manager) readClaim(ctx context.Context, pod *corev1.Pod, u claimUse) (*resourcev1.ResourceClaim, error) {
	name := u.claim
	claim, err := m.ReadClaim(ctx, pod.Namespace, name)
	if err != nil {
		return nil, fmt.Errorf("fetch ResourceClaim %s/%s referenced by pod %s: %w", pod.Namespace, name, pod.Name, err)
	}
	switch {
	case u.isOwned && !metav1.IsControlledBy(claim, pod):
		return nil, fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", claim.Namespace,
			name, pod.Namespace, pod.Name)
	case claim.Status.Allocation == nil:
		return nil, fmt.Errorf("ResourceClaim %s/%s is not allocated", claim.Namespace, name)
	case !slices.ContainsFunc(claim.Status.ReservedFor,
		func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID }):
		return nil, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, name,
			claim.UID)
	}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if len(r.SkipNodeOperations) > 0 {
			return nil, fmt.Errorf(
				"ResourceClaim %s/%s: devices that are not to be prepared are not supported by this node",
				claim.Namespace, name)
		}
	}
	return claim, nil
}

// claimName returns the name of the claim for an entry of a pod. It returns "" if the entry needs no claim.
func claimName(pod *corev1.Pod, c *corev1.PodResourceClaim) (string, error) {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName, nil
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.Name == c.Name {
			if s.ResourceClaimName == nil {
				return "", nil
			}
			return *s.ResourceClaimName, nil
		}
	}
	return "", fmt.Errorf("pod %s/%s: claim %s: ResourceClaim not created yet", pod.Namespace, pod.Name, c.Name)
}

// recordUse records that a pod uses a claim.
func (m *Manager) recordUse(pod types.UID, claim *resourcev1.ResourceClaim) *preparedClaim {
	m.mu.Lock()
	defer m.mu.Unlock()
	one := m.claims[claim.UID]
	if one == nil {
		one = &preparedClaim{Claim: Claim{claim.Namespace, claim.Name, claim.UID}, Drivers: map[string][]Device{}}
		for _, r := range claim.Status.Allocation.Devices.Results {
			one.Drivers[r.Driver] = nil
		}
		if m.claims == nil {
			m.claims = map[types.UID]*preparedClaim{}
		}
		m.claims[claim.UID] = one
	}
	if !slices.Contains(one.Pods, pod) {
		one.Pods = append(one.Pods, pod)
	}
	return one
}

// Unprepare removes a pod from its claims, and unprepares the claims that no other pod uses. It can be repeated. It
// does nothing for pods without claims.
func (m *Manager) Unprepare(ctx context.Context, pod types.UID) error {
	mine := m.claimsOf(pod)
	if len(mine) == 0 {
		return nil
	}
	var errs []error
	for _, one := range mine {
		errs = append(errs, m.releaseUse(ctx, one, pod))
	}
	return errors.Join(append(errs, m.save())...)
}

// releaseUse removes a pod from a claim. The last pod unprepares it.
func (m *Manager) releaseUse(ctx context.Context, one *preparedClaim, pod types.UID) error {
	one.driverLock.Lock()
	defer one.driverLock.Unlock()
	m.mu.Lock()
	last := len(one.Pods) == 1 && one.Pods[0] == pod
	m.mu.Unlock()
	if last {
		if err := m.unprepareAll(ctx, one); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if one.Pods = slices.DeleteFunc(one.Pods, func(u types.UID) bool { return u == pod }); len(one.Pods) == 0 {
		delete(m.claims, one.UID)
	}
	return nil
}

// unprepareAll asks all drivers of a claim to unprepare it. The caller holds the claim's turn.
func (m *Manager) unprepareAll(ctx context.Context, one *preparedClaim) error {
	if m.Plugins == nil {
		return nil
	}
	m.mu.Lock()
	one.Done = false // a pod that uses the claim from now on prepares it again
	drivers := slices.Sorted(maps.Keys(one.Drivers))
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	errs := make([]error, len(drivers))
	var asking sync.WaitGroup
	for i, driver := range drivers {
		asking.Go(func() {
			if err := m.Plugins.Unprepare(ctx, driver, one.Claim); err != nil {
				errs[i] = fmt.Errorf("driver %s: claim %s/%s: %w", driver, one.Namespace, one.Name, err)
			}
		})
	}
	asking.Wait()
	return errors.Join(errs...)
}

// claimsOf returns the claims that a pod uses.
func (m *Manager) claimsOf(pod types.UID) []*preparedClaim {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*preparedClaim
	for _, one := range m.claims {
		if slices.Contains(one.Pods, pod) {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b *preparedClaim) int { return cmp.Compare(a.UID, b.UID) })
	return out
}

// Pods returns the pods that use a prepared claim.
func (m *Manager) Pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for _, one := range m.claims {
		for _, p := range one.Pods {
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// IDs returns the CDI device names for a container of a pod, without duplicates.
func (m *Manager) IDs(pod *corev1.Pod, c *corev1.Container) []string {
	var out []string
	for _, t := range claimRequests(pod, c) {
		var ids []string
		m.eachDevice(pod, t.claim, t.request, func(_ string, d Device) { ids = append(ids, d.CDI...) })
		slices.Sort(ids)
		for _, id := range ids {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// isFor reports whether a device was prepared for a request of its claim. An empty request matches every device.
func (d Device) isFor(request string) bool {
	return request == "" || len(d.Requests) == 0 || slices.ContainsFunc(d.Requests, func(r string) bool {
		parent, _, _ := strings.Cut(r, "/")
		return r == request || parent == request
	})
}
