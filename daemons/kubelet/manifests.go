package kubelet

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"clusterctl/daemons/kubelet/pod"
)

// readManifests takes in the directory of static pods as it is now. What could not be read stays as it was.
func (k *Kubelet) readManifests() error {
	k.reading.Lock()
	defer k.reading.Unlock()
	was, recorded, err := k.loadRecord()
	if err != nil {
		return err // of pods whose names are not known nothing follows
	}
	held := map[types.UID]bool{} // pods that run on as they are
	holdAll := func() {
		for _, uid := range was.Pods {
			held[uid] = true
		}
		k.mirrors.hold(held)
		k.manifestsRead.Store(recorded)
	}
	now := staticRecord{Pods: map[string]types.UID{}}
	now.Device, now.Inode, err = identity(k.file.StaticPodPath)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(k.file.StaticPodPath)
	}
	missing := errors.Is(err, os.ErrNotExist) && !recorded
	k.manifestsMissing.Store(missing)
	if missing {
		k.manifestsRead.Store(true) // static pods that run here are told by their sandboxes
		return nil
	}
	if err != nil {
		holdAll()
		return fmt.Errorf("read the directory of static pods: %w", err)
	}
	found := map[string]*corev1.Pod{}
	var failures []error
	whole := true
	for _, e := range entries {
		path := filepath.Join(k.file.StaticPodPath, e.Name())
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || !isManifest(e.Name()) {
			continue
		}
		p, err := readManifest(path, k.name)
		if err != nil {
			failures = append(failures, err)
			if uid, known := was.Pods[path]; known {
				now.Pods[path], held[uid] = uid, true
			}
			whole = whole && recorded // without a record, an earlier version of it may run
			continue
		}
		found[key(p)] = p
		now.Pods[path] = p.UID
	}
	if len(now.Pods) == 0 && len(was.Pods) > 0 && (now.Device != was.Device || now.Inode != was.Inode) {
		holdAll()
		return fmt.Errorf(
			"the directory of static pods, %s, is another one than before, and empty: its %d pods go on; if they "+
				"should not, remove %s",
			k.file.StaticPodPath,
			len(was.Pods),
			k.recordPath(),
		)
	}
	if whole {
		if err := k.saveRecord(now); err != nil {
			failures = append(failures, err)
		}
	}
	k.mirrors.hold(held)
	for _, gone := range k.mirrors.replace(found, held) {
		k.mu.Lock()
		w := k.workers[gone.UID]
		k.mu.Unlock()
		if w != nil {
			w.tell(func() { w.removed = true })
		}
	}
	for _, p := range found {
		if !k.replacing(p) {
			k.give(p)
		}
	}
	k.manifestsRead.Store(whole)
	return errors.Join(failures...)
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json", "":
		return true
	}
	return false
}

// replacing reports whether an earlier version of a static pod still runs: the new
// one has to wait for its end.
func (k *Kubelet) replacing(p *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for uid, w := range k.workers {
		if uid != p.UID && key(w.pod) == key(p) && pod.Static(w.pod) {
			return true
		}
	}
	return false
}

// staticGone starts what had to wait for a static pod's end.
func (k *Kubelet) staticGone(was *corev1.Pod) {
	if next := k.mirrors.wanted(key(was)); next != nil && next.UID != was.UID {
		k.give(next)
	}
}

// readManifest reads one static pod and makes it what the API would: defaults, a
// name with the node's, and a uid that changes with its content.
func readManifest(path, node string) (*corev1.Pod, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(data, p); err != nil {
		return nil, fmt.Errorf("read manifest %s: %w", path, err)
	}
	if p.Kind != "Pod" || p.APIVersion != "v1" || p.Name == "" || len(p.Spec.Containers) == 0 {
		return nil, fmt.Errorf("read manifest %s: it is not a v1 Pod with a name and a container", path)
	}
	h := fnv.New128a()
	fmt.Fprintf(h, "%s\x00%s\x00", node, path)
	h.Write(data)
	sum := fmt.Sprintf("%x", h.Sum(nil))
	if p.Namespace == "" {
		p.Namespace = metav1.NamespaceDefault
	}
	p.Name += "-" + node
	p.UID = types.UID(sum)
	p.Spec.NodeName = node
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.SourceAnnotation], p.Annotations[pod.HashAnnotation] = "file", sum
	p.Annotations["kubernetes.io/config.seen"] = time.Now().Format(time.RFC3339Nano)
	defaults(p)
	return p, nil
}

// defaults fills in what the API server would for the fields that the kubelet acts on.
func defaults(p *corev1.Pod) {
	grace, links := int64(corev1.DefaultTerminationGracePeriodSeconds), true
	spec := &p.Spec
	if spec.RestartPolicy == "" {
		spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	if spec.DNSPolicy == "" {
		spec.DNSPolicy = corev1.DNSClusterFirst
	}
	if spec.TerminationGracePeriodSeconds == nil {
		spec.TerminationGracePeriodSeconds = &grace
	}
	if spec.EnableServiceLinks == nil {
		spec.EnableServiceLinks = &links
	}
	if spec.SecurityContext == nil {
		spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	// A static pod stays whatever the node's taints say.
	spec.Tolerations = append(
		spec.Tolerations,
		corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	)
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			if c.TerminationMessagePath == "" {
				c.TerminationMessagePath = corev1.TerminationMessagePathDefault
			}
			if c.TerminationMessagePolicy == "" {
				c.TerminationMessagePolicy = corev1.TerminationMessageReadFile
			}
			if c.ImagePullPolicy == "" {
				c.ImagePullPolicy = usualPolicy(c.Image)
			}
			for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if p == nil {
					continue
				}
				for _, d := range []struct {
					at    *int32
					value int32
				}{{&p.TimeoutSeconds, 1}, {&p.PeriodSeconds, 10}, {&p.SuccessThreshold, 1}, {&p.FailureThreshold, 3}} {
					if *d.at == 0 {
						*d.at = d.value
					}
				}
			}
			for j := range c.Ports {
				if c.Ports[j].Protocol == "" {
					c.Ports[j].Protocol = corev1.ProtocolTCP
				}
				if spec.HostNetwork && c.Ports[j].HostPort == 0 {
					c.Ports[j].HostPort = c.Ports[j].ContainerPort
				}
			}
		}
	}
}

// usualPolicy is how an image is pulled for which nothing is said.
func usualPolicy(image string) corev1.PullPolicy {
	if tag := image[strings.LastIndexByte(image, '/')+1:]; !strings.ContainsAny(tag, ":@") ||
		strings.HasSuffix(tag, ":latest") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// watchManifests follows the directory of static pods, and keeps their mirrors.
func (k *Kubelet) watchManifests(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var failures <-chan error
	watch := &manifestWatch{dir: k.file.StaticPodPath}
	defer watch.close()
	said := false
	follow := func() {
		err := watch.follow()
		if watch.watcher != nil {
			events, failures = watch.watcher.Events, watch.watcher.Errors
		}
		if err != nil && !said {
			// A machine has few watches to give, and others may have taken them all: pods matter more than promptness.
			k.env.Log.Warn("the directory of static pods is only read now and then", "every", readEvery, "error", err)
		}
		said = err != nil
	}
	// Also where it is watched: another directory may come in its place, of which the watch says nothing.
	t := time.NewTicker(readEvery)
	defer t.Stop()
	look := t.C
	// Editors write in several steps: the directory is read once they pause.
	calm := time.NewTimer(0)
	defer calm.Stop()
	mirror := time.NewTicker(5 * time.Second)
	defer mirror.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
			calm.Reset(100 * time.Millisecond)
		case <-look:
			calm.Reset(0)
		case err := <-failures:
			k.env.Log.Warn("watch the directory of static pods", "error", err)
			calm.Reset(time.Second)
		case <-calm.C:
			follow() // first, so that nothing comes between the reading and the watch
			if err := k.readManifests(); err != nil {
				k.env.Log.Error("read static pods", "error", err)
			}
			k.mirrors.sync(ctx, k.nodeRef())
		case <-mirror.C:
			k.mirrors.sync(ctx, k.nodeRef())
		}
	}
}

// readEvery is how often the directory is read where it cannot be watched.
const readEvery = 20 * time.Second

// manifestWatch tells of changes of a directory, also of one that is made later or put in the place of another.
type manifestWatch struct {
	dir     string
	watcher *fsnotify.Watcher
}

// follow watches the directory that is there now, and where there is none, the one that it would be made in.
func (w *manifestWatch) follow() error {
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return err
		}
		w.watcher = watcher
	}
	parent := filepath.Dir(w.dir)
	err := w.watcher.Add(w.dir)
	if errors.Is(err, os.ErrNotExist) {
		return w.watcher.Add(parent)
	}
	if err == nil {
		_ = w.watcher.Remove(parent) // which most often is not watched
	}
	return err
}

func (w *manifestWatch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}
