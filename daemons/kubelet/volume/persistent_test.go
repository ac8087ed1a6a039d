package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
)

// bindRecorder is a Mounter that records the options of bind mounts.
type bindRecorder struct {
	Plain
	options []string
}

func (o *bindRecorder) Bind(from, to string, of []string) error {
	o.options = of
	return o.Plain.Bind(from, to, of)
}

// The settings of a persistent volume are applied when it is mounted, or rejected.
//
//style:long a table of volumes, with how each is mounted
func TestAPersistentVolumeIsMountedWithItsOptions(t *testing.T) {
	type pv = corev1.PersistentVolumeSpec
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	on := onNode
	hostPath := func(s *pv) {
		s.HostPath, s.Local = &corev1.HostPathVolumeSource{Path: s.Local.Path}, nil
	}
	with := func(o ...string) func(*pv, *corev1.Pod) { return func(s *pv, _ *corev1.Pod) { s.MountOptions = o } }
	always, mismatch := corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch
	grouped := func(policy *corev1.PodFSGroupChangePolicy, readOnly bool) func(*pv, *corev1.Pod) {
		return func(_ *pv, p *corev1.Pod) {
			group := int64(os.Getgid())
			p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group, FSGroupChangePolicy: policy}
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = readOnly
		}
	}
	for name, c := range map[string]struct {
		change  func(*pv, *corev1.Pod)
		refused string
		options string
		mode    os.FileMode // of the volume; 0 means unchanged
	}{
		"a directory":  {func(*pv, *corev1.Pod) {}, "", "", 0},
		"of this node": {on("kubernetes.io/hostname", "n1"), "", "", 0},
		"of another node": {on("kubernetes.io/hostname", "n2"), "node affinity check failed: no " +
			"matching NodeSelectorTerms", "", 0},
		"the labels of the node are unknown": {on("kubernetes.io/hostname", "n1"), "no answer", "", 0},
		"of another zone":                    {on("zone", "a"), "node affinity check failed", "", 0},
		"a path of another node": {func(s *pv,
			p *corev1.Pod) {
			hostPath(s)
			on("kubernetes.io/hostname", "n2")(s, p)
		}, "node affinity check failed", "", 0},
		"with options":                  {with("noexec", "nodev,noatime"), "", "noexec nodev,noatime", 0},
		"with options of a file system": {with("nolock"), `mount option "nolock" is not supported`, "", 0},
		"a path with options": {func(s *pv, p *corev1.Pod) { hostPath(s); with("noexec")(s, p) },
			"mount options are not supported for hostPath volumes", "", 0},
		"a file": {func(s *pv, _ *corev1.Pod) { s.Local.Path = file }, "is neither a " +
			"directory nor a block device", "", 0},
		"a device": {func(s *pv, _ *corev1.Pod) { s.Local.Path = "/dev/null" }, "is neither a directory nor a block " +
			"device", "", 0},
		"nothing": {func(s *pv, _ *corev1.Pod) { s.Local.Path += "/gone" }, "no such file or " +
			"directory", "", 0},
		"another's": {func(s *pv, _ *corev1.Pod) {
			s.Local, s.NFS = nil,
				&corev1.NFSVolumeSource{}
		}, "only hostPath and local volumes are supported", "", 0},
		"for a group":                   {grouped(nil, false), "", "", 0o2770},
		"for a group, always":           {grouped(&always, false), "", "", 0o2770},
		"for a group that it is not of": {grouped(&mismatch, false), "", "", 0o2770},
		"for a group that only reads":   {grouped(nil, true), "", "", 0},
		"a path for a group": {func(s *pv, p *corev1.Pod) { hostPath(s); grouped(nil, false)(s, p) }, "", "",
			0},
	} {
		m, s := manager(t)
		m.Labels = func(context.Context) (map[string]string, error) {
			if name == "the labels of the node are unknown" {
				return nil, errors.New("no answer")
			}
			return map[string]string{"kubernetes.io/hostname": "n1", "zone": "b"}, nil
		}
		mounter, made, v, p := bindLocalVolume(t, m, s)
		c.change(&v.Spec, p)
		_, err := m.Setup(t.Context(), p)
		if c.refused == "" && err != nil ||
			c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
			t.Errorf("%s: %v, want %q", name, err, c.refused)
		}
		if got := strings.Join(mounter.options, " "); got != c.options {
			t.Errorf("%s: bound with %q, want %q", name, got, c.options)
		}
		var st unix.Stat_t
		if err := unix.Stat(made, &st); err != nil {
			t.Fatal(err)
		}
		want := uint32(c.mode)
		if want == 0 {
			want = 0o750
		}
		if st.Mode&0o7777 != want {
			t.Errorf("%s: the mode is %o, want %o", name, st.Mode&0o7777, want)
		}
	}
}

// onNode returns a change that requires a label of the node.
func onNode(key, value string) func(*corev1.PersistentVolumeSpec, *corev1.Pod) {
	return func(s *corev1.PersistentVolumeSpec, _ *corev1.Pod) {
		s.NodeAffinity = &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
				}}}},
		}
	}
}

// bindLocalVolume gives a manager a claim that is bound to a local volume, and a pod that uses it.
func bindLocalVolume(t *testing.T, m *Manager, s *fakeSource) (mounter *bindRecorder, made string,
	v *corev1.PersistentVolume, p *corev1.Pod) {
	mounter = &bindRecorder{}
	m.Mounter = mounter
	s.claims = map[string]*corev1.PersistentVolumeClaim{
		"d/c": {ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c", UID: "c"},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeName: "pv",
			}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
	}
	made = t.TempDir()
	if err := os.Chmod(made, 0o750); err != nil {
		t.Fatal(err)
	}
	v = &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "d", Name: "c", UID: "c"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: made}}},
	}
	s.volumes = map[string]*corev1.PersistentVolume{"pv": v}
	p = newPod(
		corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
	)
	return mounter, made, v, p
}

func TestABindMountHasItsOptions(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
	if err := (Kernel{}).Bind(from, to, []string{"ro,nodev", "noexec"}); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(to, &st); err != nil {
		t.Fatal(err)
	}
	if want := int64(unix.ST_RDONLY | unix.ST_NODEV | unix.ST_NOEXEC); st.Flags&want != want {
		t.Errorf("its flags are %x", st.Flags)
	}
	if err := (Kernel{}).Bind(from, to, []string{"size=1"}); err == nil || !strings.Contains(err.Error(), `"size=1"`) {
		t.Errorf("an option of a file system: %v", err)
	}
}

// A kubelet that is killed during a mount leaves no bind mount without its options, which the next kubelet would
// consider complete.
func TestABindMountIsNeverVisibleWithoutItsOptions(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "v")
	half := filepath.Join(filepath.Dir(to), "..new-v")
	for _, dir := range []string{to, half} {
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	}
	if err := unix.Mount(from, half, "", unix.MS_BIND, ""); err != nil { // the leftover of a killed kubelet
		t.Fatal(err)
	}
	done, seen := make(chan struct{}), make(chan int64)
	go func() {
		without := int64(0)
		for {
			select {
			case <-done:
				seen <- without
				return
			default:
			}
			if hasUnrestrictedMount(to) {
				without++
			}
		}
	}()
	for range 2000 {
		if err := (Kernel{}).Bind(from, to, []string{"noexec"}); err != nil {
			t.Fatal(err)
		}
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	if n := <-seen; n > 0 {
		t.Errorf("the mount was seen without its options %d times", n)
	}
	if mounted, err := (Kernel{}).IsMounted(half); err != nil || mounted {
		t.Errorf("what was made ready is still mounted: %v", err)
	}
	if err := os.WriteFile(filepath.Join(from, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Kernel{}).Bind(from, to, []string{"noexec"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(to, "file")); err != nil {
		t.Error(err)
	}
}

// hasUnrestrictedMount reports whether a mount without noexec is at a path.
func hasUnrestrictedMount(path string) bool {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var stat unix.Statx_t
	var fs unix.Statfs_t
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, &stat) != nil || unix.Fstatfs(fd, &fs) != nil {
		return false
	}
	return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 && fs.Flags&unix.ST_NOEXEC == 0
}

// modeRecorder is a Mounter that records the mode of a volume when it is mounted.
type modeRecorder struct {
	Plain
	mode uint32
}

func (o *modeRecorder) Bind(from, to string, of []string) error {
	var st unix.Stat_t
	if err := unix.Stat(from, &st); err != nil {
		return err
	}
	o.mode = st.Mode & 0o7777
	return o.Plain.Bind(from, to, of)
}

// An existing mount is considered complete, even after an error or a crash. Therefore the files get the pod's group
// before the mount, and an error prevents the mount. A read-only volume is not changed.
func TestTheGroupIsSetBeforeTheVolumeIsMounted(t *testing.T) {
	for name, c := range map[string]struct {
		options []string
		class   string // which component created the volume
		linked  bool   // its path is a link
		want    uint32
	}{
		"a directory of the node": {nil, "", false, 0o2770}, "a link to one": {nil, "", true, 0o2770},
		"one that is provisioned": {nil, directory.Provisioner, false, 0o2777},
		"one that is only read":   {[]string{"nodev,ro"}, "", false, 0o700},
	} {
		m, s := manager(t)
		mounter := &modeRecorder{}
		m.Mounter, m.Provisioned = mounter, filepath.Join(t.TempDir(), "provisioned")
		path := filepath.Join(t.TempDir(), "data")
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if c.linked {
			link := path + ".link"
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			path = link
		}
		s.claims = map[string]*corev1.PersistentVolumeClaim{
			"d/c": {ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: "c", UID: "c"},
				Spec: corev1.PersistentVolumeClaimSpec{
					VolumeName: "pv",
				}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound}},
		}
		v := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "d", Name: "c", UID: "c"},
				MountOptions:           c.options,
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}},
		}
		if c.class != "" {
			v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": c.class}
			v.Spec.Local.Path = directory.Path("pv")
		}
		s.volumes = map[string]*corev1.PersistentVolume{"pv": v}
		group := int64(os.Getgid())
		p := newPod(
			corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
		)
		p.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &group}
		if _, err := m.Setup(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if mounter.mode != c.want {
			t.Errorf("%s: mounted with the mode %o, want %o", name, mounter.mode, c.want)
		}
	}
}

// The mode and owner of projected files depend on the pod's users and groups.
func TestProjectedFilesAreReadableByTheUserOfThePod(t *testing.T) {
	as := func(users ...*int64) []corev1.Container {
		var all []corev1.Container
		for _, u := range users {
			all = append(all, corev1.Container{SecurityContext: &corev1.SecurityContext{RunAsUser: u}})
		}
		return all
	}
	me, other := int64(os.Geteuid())+7, int64(8)
	group := int64(os.Getgid())
	mode := func(m int32) *int32 { return &m }
	for name, c := range map[string]struct {
		mode        *int32
		context     *corev1.PodSecurityContext
		init, all   []corev1.Container
		token, data uint32
		owner       int64
	}{
		"everybody":            {nil, nil, nil, as(nil), 0o644, 0o644, 0},
		"as it says":           {mode(0o400), nil, nil, as(nil), 0o400, 0o400, 0},
		"a group":              {nil, &corev1.PodSecurityContext{FSGroup: &group}, nil, as(nil), 0o640, 0o644, 0},
		"the pod's user":       {nil, &corev1.PodSecurityContext{RunAsUser: &me}, nil, as(nil, nil), 0o600, 0o644, me},
		"the containers' user": {mode(0o444), nil, as(&me), as(&me, &me), 0o600, 0o444, me},
		"users of several kind": {nil, &corev1.PodSecurityContext{RunAsUser: &me}, nil, as(nil, &other), 0o644, 0o644,
			0},
		"one that does not say": {nil, nil, nil, as(&me, nil), 0o644, 0o644, 0},
		"an init container's":   {nil, nil, as(&other), as(&me), 0o644, 0o644, 0},
	} {
		m, _ := manager(t)
		p := newPod(
			corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{DefaultMode: c.mode, Sources: []corev1.VolumeProjection{
					{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
					{
						ConfigMap: &corev1.ConfigMapProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
							Items:                []corev1.KeyToPath{{Key: "a", Path: "data"}},
						},
					},
				}},
			},
		)
		p.Spec.SecurityContext, p.Spec.InitContainers, p.Spec.Containers = c.context, c.init, c.all
		if _, err := m.Setup(t.Context(), p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for file, want := range map[string]uint32{"token": c.token, "data": c.data} {
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(m.PodDir("u"), "volumes", "kubernetes.io~projected", "v", file),
				&st); err != nil {
				t.Fatal(err)
			}
			owner := int64(0)
			if file == "token" {
				owner = c.owner
			}
			if st.Mode&0o777 != want || int64(st.Uid) != owner {
				t.Errorf("%s: %s has mode %o and user %d, want %o and %d", name, file, st.Mode&0o777, st.Uid, want,
					owner)
			}
		}
	}
}
