package apply

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"clusterctl/daemons/gitops"
)

// Bounds of the watches.
const (
	maxWatches    = 512     // of all accounts
	maxOfAccount  = 128     // watches of one account
	maxWatched    = 400_000 // objects of all watches
	wideFrom      = 4       // namespaces from which an account's objects of a kind are watched in all of them
	watchPage     = 500     // objects of one page of a list
	watchSeconds  = 300     // lifetime of a watch request; the API server authorizes the next one
	watchIdle     = 2 * time.Hour
	watchPause    = time.Second // before a failed watch is begun again; doubles up to maxWatchPause
	maxWatchPause = time.Minute
	deniedPause   = 10 * time.Minute // before a watch that the account may not have is tried again
	pruneInterval = time.Minute
)

// busyKinds change too often to be watched. Their objects are read.
var busyKinds = []string{"Pod", "Node", "Event", "Lease", "Endpoints", "EndpointSlice"}

// watchKey identifies a watch: what one account sees of one kind. Accounts share no watches, so that each sees only
// what the API server lets it see.
type watchKey struct {
	user      string
	resource  schema.GroupVersionResource
	namespace string // empty means all
}

// place is a kind as an account has objects of it.
type place struct {
	user string
	schema.GroupVersionResource
}

// watches are the watches of all accounts. They hold only the versions of objects.
type watches struct {
	requests chan *watched // watches to begin

	mu         sync.Mutex // guards the fields below, and the fields of the watches
	all        map[watchKey]*watched
	namespaces map[place]map[string]bool // namespaces of objects; at most wideFrom of each place
	total      int                       // objects of all watches
}

// watched is one watch.
type watched struct {
	watchKey
	client   metadata.Interface
	versions map[string]string // by namespace and name; nil means that they are not known
	used     time.Time
	denied   time.Time // when the API server has refused it; zero means that it has not
}

func newWatches() *watches {
	return &watches{requests: make(chan *watched, maxWatches), all: map[watchKey]*watched{},
		namespaces: map[place]map[string]bool{}}
}

// version returns the version of an object, or "" if it is not known. It begins to watch the object.
func (w *watches) version(user string, client metadata.Interface, resource schema.GroupVersionResource,
	id gitops.ObjectID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	wide, exact := watchKey{user, resource, ""}, watchKey{user, resource, id.Namespace}
	name := id.Namespace + "/" + id.Name
	if version := w.use(wide, name); version != "" {
		return version
	}
	at := place{user, resource}
	in := w.namespaces[at]
	if in == nil {
		if len(w.namespaces) >= maxWatches {
			return ""
		}
		in = map[string]bool{}
		w.namespaces[at] = in
	}
	if len(in) < wideFrom {
		in[id.Namespace] = true
	}
	if len(in) >= wideFrom && !w.isDenied(wide) {
		w.begin(wide, client)
		return ""
	}
	if version := w.use(exact, name); version != "" {
		return version
	}
	w.begin(exact, client)
	return ""
}

// use returns the version of an object in a watch. The caller holds mu.
func (w *watches) use(k watchKey, name string) string {
	one := w.all[k]
	if one == nil {
		return ""
	}
	one.used = time.Now()
	return one.versions[name]
}

// isDenied reports whether a watch was refused a short time ago. The caller holds mu.
func (w *watches) isDenied(k watchKey) bool {
	one := w.all[k]
	return one != nil && !one.denied.IsZero()
}

// begin requests a watch unless it exists. The caller holds mu.
func (w *watches) begin(k watchKey, client metadata.Interface) {
	if w.all[k] != nil || len(w.all) >= maxWatches || w.total >= maxWatched {
		return
	}
	n := 0
	for other := range w.all {
		if other.user == k.user {
			n++
		}
	}
	if n >= maxOfAccount {
		return
	}
	one := &watched{watchKey: k, client: client, used: time.Now()}
	select {
	case w.requests <- one:
		w.all[k] = one
	default: // requested again in the next round
	}
}

// run carries out watches until ctx ends.
func (w *watches) run(ctx context.Context, log *slog.Logger) {
	var all sync.WaitGroup
	defer all.Wait()
	tick := time.NewTicker(pruneInterval)
	defer tick.Stop()
	stops := map[*watched]context.CancelFunc{}
	for {
		select {
		case <-ctx.Done():
			for _, stop := range stops {
				stop()
			}
			return
		case one := <-w.requests:
			watchCtx, stop := context.WithCancel(ctx)
			stops[one] = stop
			all.Go(func() { w.follow(watchCtx, one, log) })
		case <-tick.C:
			for _, one := range w.expired() {
				stops[one]()
				delete(stops, one)
			}
		}
	}
}

// expired removes and returns the running watches that nothing has used for a long time, and those that were refused.
func (w *watches) expired() (list []*watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, one := range w.all {
		isOld := time.Since(one.used) > watchIdle
		if isOld || !one.denied.IsZero() && time.Since(one.denied) > deniedPause {
			w.reset(one, nil)
			delete(w.all, k)
			delete(w.namespaces, place{k.user, k.resource}) // counted again
			list = append(list, one)
		}
	}
	return list
}

// reset replaces the versions of a watch. The caller holds mu.
func (w *watches) reset(one *watched, versions map[string]string) {
	w.total += len(versions) - len(one.versions)
	one.versions = versions
}

// lose records that the versions of a watch are not known.
func (w *watches) lose(one *watched, denied bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reset(one, nil)
	if denied {
		one.denied = time.Now()
	}
}

// follow keeps the versions of a watch up to date until ctx ends, or until the API server refuses the watch.
func (w *watches) follow(ctx context.Context, one *watched, log *slog.Logger) {
	pause := watchPause
	for ctx.Err() == nil {
		start := time.Now()
		err := w.followOnce(ctx, one)
		denied := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || errors.Is(err, errTooMany) ||
			apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
		w.lose(one, denied)
		if ctx.Err() != nil {
			return
		}
		log.Debug("a watch has ended", "user", one.user, "resource", one.resource.String(), "namespace", one.namespace,
			"err", err)
		if denied {
			<-ctx.Done()
			return
		}
		if time.Since(start) > maxWatchPause {
			pause = watchPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause = min(2*pause, maxWatchPause)
		}
	}
}

// errTooMany means that more objects exist than are watched.
var errTooMany = errors.New("too many objects")

// followOnce lists the objects and follows their changes until something fails.
func (w *watches) followOnce(ctx context.Context, one *watched) error {
	client := one.client.Resource(one.resource).Namespace(one.namespace)
	versions := map[string]string{}
	options := metav1.ListOptions{Limit: watchPage}
	var revision string
	for {
		page, err := list(ctx, client, options)
		if err != nil {
			return err
		}
		for i := range page.Items {
			versions[nameOf(&page.Items[i])] = versionOf(&page.Items[i])
		}
		if len(versions) > maxWatched/4 {
			return errTooMany
		}
		if revision, options.Continue = page.ResourceVersion, page.Continue; options.Continue == "" {
			break
		}
	}
	w.mu.Lock()
	if ctx.Err() == nil {
		w.reset(one, versions)
	}
	w.mu.Unlock()
	for {
		next, err := w.watch(ctx, client, one, revision)
		if err != nil {
			return err
		}
		revision = next
	}
}

// list reads one page.
func list(ctx context.Context, client metadata.ResourceInterface,
	options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return client.List(ctx, options)
}

// watch follows changes after a revision until the API server ends the request, and returns the last revision.
func (w *watches) watch(ctx context.Context, client metadata.ResourceInterface, one *watched,
	revision string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, watchSeconds*time.Second+requestTimeout)
	defer cancel()
	seconds := int64(watchSeconds)
	events, err := client.Watch(ctx, metav1.ListOptions{ResourceVersion: revision, AllowWatchBookmarks: true,
		TimeoutSeconds: &seconds})
	if err != nil {
		return "", err
	}
	defer events.Stop()
	start, isEmpty := time.Now(), true
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return "", fmt.Errorf("watch %s: %w", one.resource.Resource, apierrors.FromObject(event.Object))
		}
		o, ok := event.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			return "", fmt.Errorf("watch %s: unexpected %T", one.resource.Resource, event.Object)
		}
		isEmpty, revision = false, o.ResourceVersion
		if err := w.update(ctx, one, event.Type, o); err != nil {
			return "", err
		}
	}
	if isEmpty && time.Since(start) < time.Second {
		return "", errors.New("the watch has ended at once")
	}
	return revision, ctx.Err()
}

// update carries out one change.
func (w *watches) update(ctx context.Context, one *watched, kind watch.EventType,
	o *metav1.PartialObjectMetadata) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if kind == watch.Bookmark || one.versions == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	before := len(one.versions)
	if kind == watch.Deleted {
		delete(one.versions, nameOf(o))
	} else {
		one.versions[nameOf(o)] = versionOf(o)
	}
	w.total += len(one.versions) - before
	if len(one.versions) > maxWatched/4 || w.total > maxWatched {
		return errTooMany
	}
	return nil
}

func nameOf(o *metav1.PartialObjectMetadata) string { return o.Namespace + "/" + o.Name }

// versionOf returns what gitops.VersionOf returns for the whole object.
func versionOf(o *metav1.PartialObjectMetadata) string {
	if o.UID == "" || o.ResourceVersion == "" {
		return ""
	}
	return string(o.UID) + " " + o.ResourceVersion
}

var _ gitops.Tracker = (*applier)(nil)

// Versions implements gitops.Tracker.
func (a *applier) Versions(ids []gitops.ObjectID) []string {
	versions := make([]string, len(ids))
	resources := map[schema.GroupVersionKind]schema.GroupVersionResource{}
	for i, id := range ids {
		gvk := schema.FromAPIVersionAndKind(id.APIVersion, id.Kind)
		if slices.Contains(busyKinds, id.Kind) {
			continue
		}
		resource, ok := resources[gvk]
		if !ok {
			resource, _ = a.live.ResourceOf(gvk) // zero for a kind that is not served
			resources[gvk] = resource
		}
		if resource.Resource != "" {
			versions[i] = a.watches.version(a.user, a.metadata, resource, id)
		}
	}
	return versions
}

// Run watches the objects of sources until ctx ends. Without it, every object is read in every round.
func (c *Cluster) Run(ctx context.Context, log *slog.Logger) { c.watches.run(ctx, log) }
