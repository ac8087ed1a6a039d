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

// Times of health: how long a driver's word holds that does not say so itself, and at most; and how long is waited
// before one that said nothing more is asked again.
const (
	usualHold = 30 * time.Second
	mostHold  = 24 * time.Hour
	firstWait = time.Second
	lastWait  = time.Minute
)

// mostDevices is of how many devices of a driver the last word is kept that it does not name any more.
const mostDevices = 16384

// health is what drivers say of their devices.
type health struct {
	mu  sync.Mutex
	all map[string]map[place]condition // by driver
}

// place is where a driver has a device.
type place struct{ pool, device string }

// condition is what a driver said of a device, and until when that holds.
type condition struct {
	status  corev1.ResourceHealthStatus
	message string
	until   time.Time
}

// tell takes in what a driver says of all its devices, and reports whether that is another thing than before. Of a
// device that it does not name any more its last word holds until it runs out.
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

// hold is how long what is said of a device holds from now on.
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

// shortened is a driver's message as long as the API takes it.
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

// expire forgets what does not hold any more, and returns the drivers that had said it.
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

// of is what holds of a device.
func (h *health) of(driver, pool, device string, now time.Time) (corev1.ResourceHealthStatus, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c, ok := h.all[driver][place{pool, device}]; ok && now.Before(c.until) {
		return c.status, c.message
	}
	return corev1.ResourceHealthStatusUnknown, ""
}

// Health is what a driver said last of a device, with its message, as long as that holds.
func (r *Registry) Health(driver, pool, device string) (corev1.ResourceHealthStatus, string) {
	return r.health.of(driver, pool, device, time.Now())
}

// follow takes in what a plugin says of its devices until ctx ends.
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

// listen takes in one stream, and reports whether anything came by it.
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
