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

// Registry finds drivers by the sockets that they make in a directory, and tells them that they were found. Plugins of
// other kinds are left to others.
type Registry struct {
	Dir string // of the sockets
	Log *slog.Logger
	// Gone is told of a driver none of whose plugins is left, after a while in which it may have come back. nil: nobody
	// cares.
	Gone func(ctx context.Context, driver string)
	// Changed is told of a driver that says something else of its devices' health, or nothing any more. nil: nobody
	// cares.
	Changed func(driver string)

	health    health
	following sync.WaitGroup // of plugins that say how their devices are

	mu      sync.Mutex
	sockets map[string]*instance // by the path of their registration
	order   int
}

// instance is a plugin behind one socket. A driver may have two while it is updated: the last to register is used.
type instance struct {
	stamp  time.Time // of the socket, which a restarted plugin makes anew
	driver string    // empty: it is not ours, or could not be asked
	order  int
	plugin *plugin
	settle bool               // nothing is to be tried again
	stop   context.CancelFunc // of listening to it; nil when nobody does
}

// Times of the registry: how long a plugin has to answer, how often those that did not are asked again, and how long a
// driver may be away before it is gone.
const (
	answerTime = 5 * time.Second
	lookAgain  = 10 * time.Second
	awayTime   = 30 * time.Second
)

// Run follows the directory until ctx ends.
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
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer r.following.Wait()
	for {
		for _, driver := range r.look(ctx) {
			waiting.Go(func() { r.away(ctx, driver) })
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
			if r.Changed != nil {
				r.Changed(driver)
			}
		}
	}
}

// away tells that a driver is gone, unless it comes back in time.
func (r *Registry) away(ctx context.Context, driver string) {
	t := time.NewTimer(awayTime)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return
	case <-t.C:
	}
	if r.find(driver) == nil && r.Gone != nil {
		r.Gone(ctx, driver)
	}
}

// look registers the plugins whose sockets are new and forgets those whose sockets are gone. It returns the drivers
// that have none left.
func (r *Registry) look(ctx context.Context) (gone []string) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		r.Log.Warn("look for plugins' sockets", "error", err)
		return nil // that they cannot be seen does not mean that they are gone
	}
	there := map[string]time.Time{}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && info.Mode()&fs.ModeSocket != 0 && !strings.HasPrefix(e.Name(), ".") {
			there[filepath.Join(r.Dir, e.Name())] = info.ModTime()
		}
	}
	r.mu.Lock()
	if r.sockets == nil {
		r.sockets = map[string]*instance{}
	}
	var lost []*instance
	for path, i := range r.sockets {
		if stamp, ok := there[path]; !ok || !stamp.Equal(i.stamp) {
			delete(r.sockets, path)
			lost = append(lost, i)
		}
	}
	var fresh []string
	for path := range there {
		if i := r.sockets[path]; i == nil || !i.settle {
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
		i.stamp = there[path]
		r.mu.Lock()
		r.order++
		i.order, r.sockets[path] = r.order, i
		r.mu.Unlock()
		if i.plugin != nil && i.plugin.health != "" {
			var following context.Context
			following, i.stop = context.WithCancel(ctx)
			r.following.Go(func() { r.follow(following, i.driver, i.plugin) })
		}
	}
	for _, i := range lost {
		if i.plugin == nil {
			continue
		}
		if i.stop != nil {
			i.stop()
		}
		_ = i.plugin.conn.Close() // its socket is gone
		if r.find(i.driver) == nil {
			r.Log.Info("a driver's plugin is gone", "driver", i.driver)
			gone = append(gone, i.driver)
		}
	}
	return gone
}

// register asks a plugin who it is, and tells it whether it is used.
func (r *Registry) register(ctx context.Context, socket string) (*instance, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
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
		return &instance{settle: true}, nil
	}
	endpoint := info.Endpoint
	if endpoint == "" {
		endpoint = socket
	}
	stable := slices.Contains(info.SupportedVersions, drav1.DRAPluginService)
	if !stable && !slices.Contains(info.SupportedVersions, drav1beta1.DRAPluginService) {
		why := fmt.Sprintf(
			"none of the versions %v is supported by this kubelet, which has %s and %s",
			info.SupportedVersions,
			drav1.DRAPluginService,
			drav1beta1.DRAPluginService,
		)
		_, err := client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{Error: why})
		return &instance{settle: true}, errors.Join(errors.New(why), err)
	}
	to, err := dial(endpoint)
	if err != nil {
		return &instance{}, err
	}
	if _, err := client.NotifyRegistrationStatus(ctx,
		&registration.RegistrationStatus{PluginRegistered: true}); err != nil {
		return &instance{}, errors.Join(fmt.Errorf("tell that it is registered: %w", err), to.Close())
	}
	r.Log.Info("a driver's plugin has registered", "driver", info.Name, "endpoint", endpoint)
	p := &plugin{conn: to, beta: !stable}
	for _, service := range []string{v1alpha1.DRAResourceHealthService, healthv1.DRAResourceHealthService} {
		if slices.Contains(info.SupportedVersions, service) {
			p.health = service // the newer one where it has both
		}
	}
	return &instance{driver: info.Name, plugin: p, settle: true}, nil
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
			_ = i.plugin.conn.Close() // the kubelet ends
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

// Has says whether a driver is registered.
func (r *Registry) Has(driver string) bool { return r.find(driver) != nil }
