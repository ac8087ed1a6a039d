package device

import (
	"context"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
)

// defaultValidity is how long a health report is valid without its own timeout, and maxValidity is the longest
// validity. minWait and maxWait are the shortest and longest delay before reconnecting to a driver after its stream has
// ended.
const (
	defaultValidity = 30 * time.Second
	maxValidity     = 24 * time.Hour
	minWait         = time.Second
	maxWait         = time.Minute
)

// maxUnlisted limits the devices per driver whose last report is kept after the driver stopped listing them.
const maxUnlisted = 16384

// healthReports holds the drivers' reports about their devices.
type healthReports struct {
	mu       sync.Mutex
	byDriver map[string]map[deviceKey]condition // by driver
}

// deviceKey identifies a device of a driver.
type deviceKey struct{ pool, device string }

// condition is the last report about a device, and until when it is valid.
type condition struct {
	status  corev1.ResourceHealthStatus
	message string
	expires time.Time
}

// update records a driver's report about all its devices, and reports whether it changes anything. A device that the
// report no longer lists keeps its last condition until that expires.
func (h *healthReports) update(driver string, devices []*healthv1.DeviceHealth, now time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.byDriver[driver]
	updated := map[deviceKey]condition{}
	for at, c := range old {
		if now.Before(c.expires) && len(old) <= maxUnlisted {
			updated[at] = c
		} else {
			changed = true
		}
	}
	for _, d := range devices {
		at := deviceKey{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		c := condition{corev1.ResourceHealthStatusUnknown, truncateMessage(d.GetMessage()), now.Add(validity(d, now))}
		switch d.GetHealth() {
		case healthv1.HealthStatus_HEALTHY:
			c.status = corev1.ResourceHealthStatusHealthy
		case healthv1.HealthStatus_UNHEALTHY:
			c.status = corev1.ResourceHealthStatusUnhealthy
		}
		before, ok := updated[at]
		changed = changed || !ok || before.status != c.status || before.message != c.message
		updated[at] = c
	}
	if h.byDriver == nil {
		h.byDriver = map[string]map[deviceKey]condition{}
	}
	h.byDriver[driver] = updated
	return changed
}

// validity returns how long a report about a device is valid from now on.
func validity(d *healthv1.DeviceHealth, now time.Time) time.Duration {
	maximum := defaultValidity
	if s := d.GetHealthCheckTimeoutSeconds(); s > 0 {
		maximum = time.Duration(min(s, int64(maxValidity/time.Second))) * time.Second
	}
	if at := d.GetLastUpdatedTime(); at > 0 {
		maximum -= max(now.Sub(time.Unix(at, 0)), 0)
	}
	return maximum
}

// truncateMessage returns a driver's message cut to the length that the API allows.
func truncateMessage(message string) string {
	message = strings.ToValidUTF8(message, "�")
	if len(message) <= corev1.ResourceHealthMessageMaxLength {
		return message
	}
	cut := corev1.ResourceHealthMessageMaxLength - len("...")
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + "..."
}

// expire removes conditions that are no longer valid. It returns the drivers that had reported them.
func (h *healthReports) expire(now time.Time) (drivers []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for driver, devices := range h.byDriver {
		before := len(devices)
		for at, c := range devices {
			if !now.Before(c.expires) {
				delete(devices, at)
			}
		}
		if len(devices) != before {
			drivers = append(drivers, driver)
		}
		if len(devices) == 0 {
			delete(h.byDriver, driver)
		}
	}
	return drivers
}

// condition returns the current condition of a device, or Unknown.
func (h *healthReports) condition(driver, pool, device string, now time.Time) (corev1.ResourceHealthStatus, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.byDriver[driver][deviceKey{pool, device}]; ok && now.Before(c.expires) {
		return c.status, c.message
	}
	return corev1.ResourceHealthStatusUnknown, ""
}

// Health returns the last reported condition of a device with its message while it is valid, or Unknown.
func (r *Registry) Health(driver, pool, device string) (corev1.ResourceHealthStatus, string) {
	return r.health.condition(driver, pool, device, time.Now())
}

// watchHealth records a plugin's health reports until ctx ends. It stops if the plugin does not implement the service.
func (r *Registry) watchHealth(ctx context.Context, driver string, p *plugin) {
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		received, err := r.readHealth(ctx, driver, p)
		if ctx.Err() != nil {
			return
		}
		r.Log.Warn("a driver says nothing more of its devices' health", "driver", driver, "error", err)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		if received {
			wait = minWait
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// readHealth records the reports of one stream. It reports whether the stream delivered any.
func (r *Registry) readHealth(ctx context.Context, driver string, p *plugin) (received bool, err error) {
	var client healthv1.DRAResourceHealthClient
	if p.health == v1alpha1.DRAResourceHealthService {
		client = healthv1.V1Alpha1ClientWrapper{Client: v1alpha1.NewDRAResourceHealthClient(p.conn)}
	} else {
		client = healthv1.NewDRAResourceHealthClient(p.conn)
	}
	stream, err := client.NodeWatchResources(ctx, &healthv1.NodeWatchResourcesRequest{})
	if err != nil {
		return false, err
	}
	for {
		answer, err := stream.Recv()
		if err != nil {
			return received, err
		}
		received = true
		if r.health.update(driver, answer.GetDevices(), time.Now()) && r.OnChanged != nil {
			r.OnChanged(driver)
		}
	}
}
