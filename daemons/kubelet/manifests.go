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

// readManifests reads the directory of static pods and updates the static pods. A pod whose manifest cannot be read
// stays unchanged.
func (k *Kubelet) readManifests() error {
	k.static.mu.Lock()
	defer k.static.mu.Unlock()
	before, recorded, err := recordDir(k.cfg.RootDir).load()
	if err != nil {
		return err // without the pods' names nothing can be decided
	}
	held := map[types.UID]bool{} // pods that keep running unchanged
	holdAll := func() {
		for _, uid := range before.Pods {
			held[uid] = true
		}
		k.static.mirrors.setHeld(held)
		k.static.read.Store(recorded)
	}
	now := staticRecord{Pods: map[string]types.UID{}}
	now.Device, now.Inode, err = directoryIdentity(k.file.StaticPodPath)
	var entries []os.DirEntry
	if err == nil {
		entries, err = os.ReadDir(k.file.StaticPodPath)
	}
	missing := errors.Is(err, os.ErrNotExist) && !recorded
	k.static.missing.Store(missing)
	if missing {
		k.static.read.Store(true) // running static pods are recognized by their sandboxes
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
			if uid, ok := before.Pods[path]; ok {
				now.Pods[path], held[uid] = uid, true
			}
			whole = whole && recorded // without a record, an earlier version of the pod may still run
			continue
		}
		found[podName(p)] = p
		now.Pods[path] = p.UID
	}
	if len(now.Pods) == 0 && len(before.Pods) > 0 && (now.Device != before.Device || now.Inode != before.Inode) {
		holdAll()
		return fmt.Errorf("the directory of static pods, %s, is another one than before, and empty: its %d pods go "+
			"on; if they should not, remove %s", k.file.StaticPodPath, len(before.Pods),
			recordDir(k.cfg.RootDir).path())
	}
	if whole {
		if err := recordDir(k.cfg.RootDir).save(now); err != nil {
			failures = append(failures, err)
		}
	}
	k.static.mirrors.setHeld(held)
	k.applyManifests(found, held)
	k.static.read.Store(whole)
	return errors.Join(failures...)
}

// applyManifests passes the static pods to their workers, and ends those that are gone or replaced.
func (k *Kubelet) applyManifests(found map[string]*corev1.Pod, held map[types.UID]bool) {
	for _, removed := range k.static.mirrors.replace(found, held) {
		k.pods.mu.Lock()
		w := k.pods.workers[removed.UID]
		k.pods.mu.Unlock()
		if w != nil {
			w.inbox.update(func() { w.inbox.removed = true })
		}
	}
	for _, p := range found {
		if !k.pods.isReplacing(p) {
			k.updateWorker(p, nil)
		}
	}
}

func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json", "":
		return true
	}
	return false
}

// isReplacing reports whether an earlier version of a static pod still runs. The new version must wait for its end.
func (s *podWorkers) isReplacing(p *corev1.Pod) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid, w := range s.workers {
		if uid != p.UID && podName(w.inbox.pod) == podName(p) && pod.IsStatic(w.inbox.pod) {
			return true
		}
	}
	return false
}

// startReplacement starts the version of a static pod that waited for the end of the old version.
func (k *Kubelet) startReplacement(old *corev1.Pod) {
	if next := k.static.mirrors.staticPod(podName(old)); next != nil && next.UID != old.UID {
		k.updateWorker(next, nil)
	}
}

// readManifest reads one static pod and completes it as the API server would. It sets defaults, appends the node's name
// to the pod's name, and derives the UID from the content.
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
	setDefaults(p)
	return p, nil
}

// setDefaults sets the defaults of the API server for the fields that the kubelet uses.
func setDefaults(p *corev1.Pod) {
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
	// A static pod tolerates all NoExecute taints of the node.
	spec.Tolerations = append(spec.Tolerations,
		corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
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
				c.ImagePullPolicy = defaultPullPolicy(c.Image)
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

// defaultPullPolicy returns the default pull policy of an image.
func defaultPullPolicy(image string) corev1.PullPolicy {
	if tag := image[strings.LastIndexByte(image, '/')+1:]; !strings.ContainsAny(tag, ":@") ||
		strings.HasSuffix(tag, ":latest") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// watchManifests watches the directory of static pods and syncs their mirror pods until ctx ends.
func (k *Kubelet) watchManifests(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var failures <-chan error
	watch := &manifestWatch{dir: k.file.StaticPodPath}
	defer watch.close()
	isReported := false
	follow := func() {
		err := watch.follow()
		if watch.watcher != nil {
			events, failures = watch.watcher.Events, watch.watcher.Errors
		}
		if err != nil && !isReported {
			// inotify watches are limited, and other processes may use all of them. Running late is better than not
			// running.
			k.env.Log.Warn("the directory of static pods is only read now and "+
				"then", "every", manifestInterval, "error", err)
		}
		isReported = err != nil
	}
	// Read periodically even with a watch: if the directory is replaced by another, the watch reports nothing.
	t := time.NewTicker(manifestInterval)
	defer t.Stop()
	look := t.C
	// Editors write in several steps, so read the directory only after a pause.
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
			follow() // first, so that no change is lost between the read and the watch
			if err := k.readManifests(); err != nil {
				k.env.Log.Error("read static pods", "error", err)
			}
			k.static.mirrors.sync(ctx, nodeOwner(k.agent.Node()))
		case <-mirror.C:
			k.static.mirrors.sync(ctx, nodeOwner(k.agent.Node()))
		}
	}
}

// manifestInterval is how often the directory is read without relying on a watch.
const manifestInterval = 20 * time.Second

// manifestWatch reports changes of a directory. It also notices when the directory is created later or replaced.
type manifestWatch struct {
	dir     string
	watcher *fsnotify.Watcher
}

// follow watches the current directory. If it does not exist, follow watches the parent directory.
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
		_ = w.watcher.Remove(parent) // usually it is not watched, and the error does not matter
	}
	return err
}

func (w *manifestWatch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}
