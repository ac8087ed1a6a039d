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

// usualHold is how long a health report is valid without its own timeout, and mostHold is the longest validity.
// firstWait and lastWait are the shortest and longest delay before reconnecting to a driver after its stream has ended.
const (
	usualHold = 30 * time.Second
	mostHold  = 24 * time.Hour
	firstWait = time.Second
	lastWait  = time.Minute
)

// mostDevices limits the devices per driver whose last report is kept after the driver stopped listing them.
const mostDevices = 16384

// health holds the drivers' reports about their devices.
type health struct {
	mu  sync.Mutex
	all map[string]map[place]condition // by driver
}

// place identifies a device of a driver.
type place struct{ pool, device string }

// condition is the last report about a device, and until when it is valid.
type condition struct {
	status  corev1.ResourceHealthStatus
	message string
	until   time.Time
}

// tell records a driver's report about all its devices, and reports whether it changes anything. A device that the
// report no longer lists keeps its last condition until that expires.
func (h *health) tell(driver string, devices []*healthv1.DeviceHealth, now time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.all[driver]
	is := map[place]condition{}
	for at, c := range was {
		if now.Before(c.until) && len(was) <= mostDevices {
			is[at] = c
		} else {
			changed = true
		}
	}
	for _, d := range devices {
		at := place{d.GetDevice().GetPoolName(), d.GetDevice().GetDeviceName()}
		c := condition{corev1.ResourceHealthStatusUnknown, shortened(d.GetMessage()), now.Add(hold(d, now))}
		switch d.GetHealth() {
		case healthv1.HealthStatus_HEALTHY:
			c.status = corev1.ResourceHealthStatusHealthy
		case healthv1.HealthStatus_UNHEALTHY:
			c.status = corev1.ResourceHealthStatusUnhealthy
		}
		before, ok := is[at]
		changed = changed || !ok || before.status != c.status || before.message != c.message
		is[at] = c
	}
	if h.all == nil {
		h.all = map[string]map[place]condition{}
	}
	h.all[driver] = is
	return changed
}

// hold returns how long a report about a device is valid from now on.
func hold(d *healthv1.DeviceHealth, now time.Time) time.Duration {
	most := usualHold
	if s := d.GetHealthCheckTimeoutSeconds(); s > 0 {
		most = time.Duration(min(s, int64(mostHold/time.Second))) * time.Second
	}
	if at := d.GetLastUpdatedTime(); at > 0 {
		most -= max(now.Sub(time.Unix(at, 0)), 0)
	}
	return most
}

// shortened returns a driver's message cut to the length that the API allows.
func shortened(message string) string {
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
func (h *health) expire(now time.Time) (drivers []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for driver, devices := range h.all {
		before := len(devices)
		for at, c := range devices {
			if !now.Before(c.until) {
				delete(devices, at)
			}
		}
		if len(devices) != before {
			drivers = append(drivers, driver)
		}
		if len(devices) == 0 {
			delete(h.all, driver)
		}
	}
	return drivers
}

// of returns the current condition of a device, or Unknown.
func (h *health) of(driver, pool, device string, now time.Time) (corev1.ResourceHealthStatus, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.all[driver][place{pool, device}]; ok && now.Before(c.until) {
		return c.status, c.message
	}
	return corev1.ResourceHealthStatusUnknown, ""
}

// Health returns the last reported condition of a device with its message while it is valid, or Unknown.
func (r *Registry) Health(driver, pool, device string) (corev1.ResourceHealthStatus, string) {
	return r.health.of(driver, pool, device, time.Now())
}

// follow records a plugin's health reports until ctx ends. It stops if the plugin does not implement the service.
func (r *Registry) follow(ctx context.Context, driver string, p *plugin) {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		said, err := r.listen(ctx, driver, p)
		if ctx.Err() != nil {
			return
		}
		r.Log.Warn("a driver says nothing more of its devices' health", "driver", driver, "error", err)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		if said {
			wait = firstWait
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

// listen records the reports of one stream. It reports whether the stream delivered any.
func (r *Registry) listen(ctx context.Context, driver string, p *plugin) (said bool, err error) {
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
			return said, err
		}
		said = true
		if r.health.tell(driver, answer.GetDevices(), time.Now()) && r.Changed != nil {
			r.Changed(driver)
		}
	}
}
