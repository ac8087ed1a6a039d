package device

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	"k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Registry finds drivers by their sockets in a directory, and confirms their registration. It ignores plugins of other
// types.
type Registry struct {
	Dir string // directory of the sockets
	Log *slog.Logger
	// OnGone is called when a driver has no plugin left and has not come back within goneDelay. It may be nil.
	OnGone func(ctx context.Context, driver string)
	// OnChanged is called when the reported health of a driver's devices changes or expires. It may be nil.
	OnChanged func(driver string)

	health   healthReports
	watchers sync.WaitGroup // goroutines that follow the health of plugins

	mu      sync.Mutex
	sockets map[string]*instance // by path of the registration socket
	order   int
}

// instance is a plugin behind one socket. A driver can have two during an update; the last one to register is used.
type instance struct {
	stamp   time.Time // modification time of the socket; a restarted plugin creates a new socket
	driver  string    // empty: the plugin has another type, or did not answer
	order   int
	plugin  *plugin
	isFinal bool               // no further attempt is needed
	stop    context.CancelFunc // stops following its health; nil if it is not followed
}

// registerTimeout limits a plugin's answer. scanInterval is the interval of retries for plugins without an answer.
// goneDelay is how long a driver may be away before it counts as gone.
const (
	registerTimeout = 5 * time.Second
	scanInterval    = 10 * time.Second
	goneDelay       = 30 * time.Second
)

// Run watches the directory until ctx ends.
func (r *Registry) Run(ctx context.Context) error {
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return fmt.Errorf("make the directory of plugins' sockets: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the directory of plugins' sockets: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(r.Dir); err != nil {
		return fmt.Errorf("watch %s: %w", r.Dir, err)
	}
	again := time.NewTicker(scanInterval)
	defer again.Stop()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer r.watchers.Wait()
	for {
		for _, driver := range r.scan(ctx) {
			waiting.Go(func() { r.reportGone(ctx, driver) })
		}
		select {
		case <-ctx.Done():
			r.close()
			return ctx.Err()
		case <-watcher.Events:
		case err := <-watcher.Errors:
			r.Log.Warn("watch plugins' sockets", "error", err)
		case <-again.C:
		}
		for _, driver := range r.health.expire(time.Now()) {
			if r.OnChanged != nil {
				r.OnChanged(driver)
			}
		}
	}
}

// reportGone calls OnGone for a driver, unless it comes back within goneDelay.
func (r *Registry) reportGone(ctx context.Context, driver string) {
	t := time.NewTimer(goneDelay)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return
	case <-t.C:
	}
	if r.find(driver) == nil && r.OnGone != nil {
		r.OnGone(ctx, driver)
	}
}

// scan registers plugins with new sockets and removes plugins whose sockets are gone. It returns the drivers that have
// no plugin left.
func (r *Registry) scan(ctx context.Context) (removed []string) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		r.Log.Warn("look for plugins' sockets", "error", err)
		return nil // an unreadable directory does not mean that the plugins are gone
	}
	existing := map[string]time.Time{}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode()&fs.ModeSocket != 0 && !strings.HasPrefix(e.Name(), ".") {
			existing[filepath.Join(r.Dir, e.Name())] = info.ModTime()
		}
	}
	r.mu.Lock()
	if r.sockets == nil {
		r.sockets = map[string]*instance{}
	}
	var lost []*instance
	for path, i := range r.sockets {
		if stamp, ok := existing[path]; !ok || !stamp.Equal(i.stamp) {
			delete(r.sockets, path)
			lost = append(lost, i)
		}
	}
	var fresh []string
	for path := range existing {
		if i := r.sockets[path]; i == nil || !i.isFinal {
			fresh = append(fresh, path)
		}
	}
	r.mu.Unlock()
	slices.Sort(fresh)
	for _, path := range fresh {
		i, err := r.register(ctx, path)
		if err != nil {
			r.Log.Warn("a plugin could not be registered and will be asked again", "socket", path, "error", err)
		}
		i.stamp = existing[path]
		r.mu.Lock()
		r.order++
		i.order, r.sockets[path] = r.order, i
		r.mu.Unlock()
		if i.plugin != nil && i.plugin.health != "" {
			var following context.Context
			following, i.stop = context.WithCancel(ctx)
			r.watchers.Go(func() { r.watchHealth(following, i.driver, i.plugin) })
		}
	}
	for _, i := range lost {
		if i.plugin == nil {
			continue
		}
		if i.stop != nil {
			i.stop()
		}
		_ = i.plugin.conn.Close() // its socket is gone, so the error does not matter
		if r.find(i.driver) == nil {
			r.Log.Info("a driver's plugin is gone", "driver", i.driver)
			removed = append(removed, i.driver)
		}
	}
	return removed
}

// register asks a plugin for its type and name, and notifies it whether it is registered.
func (r *Registry) register(ctx context.Context, socket string) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := dial(socket)
	if err != nil {
		return &instance{}, err
	}
	defer conn.Close()
	client := registration.NewRegistrationClient(conn)
	info, err := client.GetInfo(ctx, &registration.InfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return &instance{}, fmt.Errorf("ask who it is: %w", err)
	}
	if info.Type != registration.DRAPlugin {
		return &instance{isFinal: true}, nil
	}
	endpoint := info.Endpoint
	if endpoint == "" {
		endpoint = socket
	}
	stable := slices.Contains(info.SupportedVersions, drav1.DRAPluginService)
	if !stable && !slices.Contains(info.SupportedVersions, drav1beta1.DRAPluginService) {
		reason := fmt.Sprintf("none of the versions %v is supported by this kubelet, which has %s and %s",
			info.SupportedVersions, drav1.DRAPluginService, drav1beta1.DRAPluginService)
		_, err := client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{Error: reason})
		return &instance{isFinal: true}, errors.Join(errors.New(reason), err)
	}
	to, err := dial(endpoint)
	if err != nil {
		return &instance{}, err
	}
	if _, err := client.NotifyRegistrationStatus(ctx,
		&registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		return &instance{}, errors.Join(fmt.Errorf("notify the driver of its registration: %w", err), to.Close())
	}
	r.Log.Info("a driver's plugin has registered", "driver", info.Name, "endpoint", endpoint)
	p := &plugin{conn: to, beta: !stable}
	for _, service := range []string{v1alpha1.DRAResourceHealthService, healthv1.DRAResourceHealthService} {
		if slices.Contains(info.SupportedVersions, service) {
			p.health = service // the newer version if it has both
		}
	}
	return &instance{driver: info.Name, plugin: p, isFinal: true}, nil
}

// find returns the newest plugin of a driver, nil if there is none.
func (r *Registry) find(driver string) *plugin {
	r.mu.Lock()
	defer r.mu.Unlock()
	var best *instance
	for _, i := range r.sockets {
		if i.plugin != nil && i.driver == driver && (best == nil || i.order > best.order) {
			best = i
		}
	}
	if best == nil {
		return nil
	}
	return best.plugin
}

func (r *Registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, i := range r.sockets {
		if i.plugin != nil {
			if i.stop != nil {
				i.stop()
			}
			_ = i.plugin.conn.Close() // the kubelet stops, so the error does not matter
		}
		delete(r.sockets, path)
	}
}

// Prepare implements Plugins.
func (r *Registry) Prepare(
	ctx context.Context,
	driver string,
	claims []Claim,
) (map[types.UID][]Device, map[types.UID]error, error) {
	p := r.find(driver)
	if p == nil {
		return nil, nil, notRegistered(driver)
	}
	return p.prepare(ctx, claims)
}

// Unprepare implements Plugins.
func (r *Registry) Unprepare(ctx context.Context, driver string, claim Claim) error {
	p := r.find(driver)
	if p == nil {
		return notRegistered(driver)
	}
	return p.unprepare(ctx, claim)
}

func notRegistered(driver string) error {
	return fmt.Errorf("DRA driver %s is not registered on this node", driver)
}

// Has reports whether a driver is registered.
func (r *Registry) Has(driver string) bool { return r.find(driver) != nil }
