package dev

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/api/directory"
)

// class creates a StorageClass that is deleted with the test.
func class(t *testing.T, name string, change func(*storagev1.StorageClass)) {
	t.Helper()
	mode, grows := storagev1.VolumeBindingWaitForFirstConsumer, true
	c := &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: name},
		Provisioner:          directory.Provisioner,
		VolumeBindingMode:    &mode,
		AllowVolumeExpansion: &grows,
	}
	if change != nil {
		change(c)
	}
	must[*storagev1.StorageClass](t)(client.StorageV1().StorageClasses().Create(t.Context(), c, metav1.CreateOptions{}))
	t.Cleanup(func() {
		_ = client.StorageV1().StorageClasses().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
}

func claimFor(
	t *testing.T,
	ns, name, class string,
	change func(*corev1.PersistentVolumeClaim),
) *corev1.PersistentVolumeClaim {
	t.Helper()
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class,
			AccessModes: []corev1.PersistentVolumeAccessMode{
				"ReadWriteOnce",
			}, Resources: corev1.VolumeResourceRequirements{Requests: hard("storage", "1Gi")}},
	}
	if change != nil {
		change(c)
	}
	return must[*corev1.PersistentVolumeClaim](
		t,
	)(
		client.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(), c, metav1.CreateOptions{}),
	)
}

// hostVolume creates a volume of a class.
func hostVolume(
	t *testing.T,
	name, class, capacity string,
	change func(*corev1.PersistentVolume),
) *corev1.PersistentVolume {
	t.Helper()
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: class,
			AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"}, Capacity: hard("storage", capacity),
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/data"},
			}},
	}
	if change != nil {
		change(v)
	}
	v = must[*corev1.PersistentVolume](
		t,
	)(
		client.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{}),
	)
	t.Cleanup(func() {
		_ = client.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	return v
}

// claimUntil waits until ok accepts a claim.
func claimUntil(
	t *testing.T,
	ns, name, what string,
	ok func(*corev1.PersistentVolumeClaim) bool,
) (c *corev1.PersistentVolumeClaim) {
	t.Helper()
	until(t, what, func(ctx context.Context) (bool, any) {
		got, err := client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		c = got
		return ok(c), c
	})
	return c
}

func claimIs(phase corev1.PersistentVolumeClaimPhase) func(*corev1.PersistentVolumeClaim) bool {
	return func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == phase }
}

func volumeUntil(t *testing.T, name string, phase corev1.PersistentVolumePhase) (v *corev1.PersistentVolume) {
	t.Helper()
	until(t, name+" to be "+string(phase), func(ctx context.Context) (bool, any) {
		got, err := client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		v = got
		return v.Status.Phase == phase, v.Status
	})
	return v
}

func toldOf(t *testing.T, ns, object, reason string) {
	t.Helper()
	until(t, "event "+reason+" of "+object, func(ctx context.Context) (bool, any) {
		list, err := client.CoreV1().
			Events(ns).
			List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + object})
		return err == nil && len(list.Items) > 0, err
	})
}

func deleteClaim(t *testing.T, ns, name string) {
	t.Helper()
	if err := client.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the claim to go", func(ctx context.Context) (bool, any) {
		return gone(client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, name, metav1.GetOptions{}))
	})
}

func TestAClaimGetsTheSmallestVolumeAndKeepsItToItself(t *testing.T) {
	t.Parallel()
	ns := namespace(t) // the namespace's name is also a unique name for the class
	hostVolume(t, ns+"-big", ns, "20Gi", nil)
	hostVolume(t, ns+"-fits", ns, "5Gi", nil)
	hostVolume(t, ns+"-small", ns, "500Mi", nil)
	for _, name := range []string{"-big", "-fits", "-small"} {
		v := volumeUntil(t, ns+name, corev1.VolumeAvailable)
		if v.Status.LastPhaseTransitionTime == nil {
			t.Errorf("%s does not say when it came to its phase", v.Name)
		}
	}
	claimFor(t, ns, "c", ns, nil)
	c := claimUntil(t, ns, "c", "the claim to be bound", claimIs(corev1.ClaimBound))
	if c.Spec.VolumeName != ns+"-fits" || c.Status.Capacity.Storage().String() != "5Gi" ||
		len(c.Status.AccessModes) != 1 ||
		c.Annotations["pv.kubernetes.io/bind-completed"] != "yes" ||
		c.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("it is %+v %+v", c.ObjectMeta, c.Status)
	}
	v := volumeUntil(t, ns+"-fits", corev1.VolumeBound)
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID ||
		v.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("its volume is %+v %+v", v.ObjectMeta, v.Spec.ClaimRef)
	}
	// A claim that is created again does not get the data of the former one.
	deleteClaim(t, ns, "c")
	volumeUntil(t, ns+"-fits", corev1.VolumeReleased)
	claimFor(t, ns, "c", ns, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = ns + "-fits" })
	toldOf(t, ns, "c", "FailedBinding")
	always(t, "the new claim waits", func(ctx context.Context) (bool, any) {
		c, err := client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "c", metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimPending, c
	})
	// The claim is bound after an administrator has removed the volume's claimRef.
	if _, err := client.CoreV1().PersistentVolumes().Patch(t.Context(), ns+"-fits", types.MergePatchType, []byte(`{"spec":{"claimRef":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claimUntil(t, ns, "c", "the new claim to be bound", claimIs(corev1.ClaimBound))
	// The claim is lost if its volume is given to another claim.
	if _, err := client.CoreV1().PersistentVolumes().Patch(t.Context(), ns+"-fits", types.MergePatchType, []byte(`{"spec":{"claimRef":{"uid":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claimUntil(t, ns, "c", "the claim to be lost", claimIs(corev1.ClaimLost))
	toldOf(t, ns, "c", "ClaimMisbound")
}

func TestAVolumeIsReservedByName(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	hostVolume(t, ns, ns, "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: "mine"}
	})
	volumeUntil(t, ns, corev1.VolumeAvailable)
	claimFor(t, ns, "other", ns, nil)
	claimFor(t, ns, "mine", ns, nil)
	if c := claimUntil(t, ns, "mine", "the claim to be bound", claimIs(corev1.ClaimBound)); c.Spec.VolumeName != ns {
		t.Errorf("it has %q", c.Spec.VolumeName)
	}
	toldOf(t, ns, "other", "ProvisioningFailed") // the class does not exist
	v := volumeUntil(t, ns, corev1.VolumeBound)
	if _, ours := v.Annotations["pv.kubernetes.io/bound-by-controller"]; ours {
		t.Error("what was reserved says that the controller bound it")
	}
	// A volume without a provisioner has no controller that can delete it.
	if _, err := client.CoreV1().PersistentVolumes().Patch(t.Context(), ns, types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	deleteClaim(t, ns, "mine")
	volumeUntil(t, ns, corev1.VolumeFailed)
	toldOf(t, "default", ns, "VolumeFailedDelete")
}

func TestAPodsEphemeralVolumeGetsItsClaim(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	spec := podSpec()
	spec.Volumes = []corev1.Volume{
		{
			Name: "v",
			VolumeSource: corev1.VolumeSource{
				Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
					Spec: corev1.PersistentVolumeClaimSpec{
						StorageClassName: &ns,
						AccessModes:      []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
						Resources:        corev1.VolumeResourceRequirements{Requests: hard("storage", "1Gi")},
					}}},
			},
		},
	}
	p := must[*corev1.Pod](
		t,
	)(
		client.CoreV1().
			Pods(ns).
			Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec},
				metav1.CreateOptions{}),
	)
	claimUntil(
		t,
		ns,
		"p-v",
		"the claim",
		func(c *corev1.PersistentVolumeClaim) bool { return metav1.IsControlledBy(c, p) },
	)
	now := int64(0)
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "p",
		metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	until(t, "the claim to go with its pod", func(ctx context.Context) (bool, any) {
		return gone(client.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "p-v", metav1.GetOptions{}))
	})
}

// storageNode is the kubelet of a node in this test. It removes volumes on request if it is willing.
type storageNode struct {
	mu      sync.Mutex
	willing bool
	asked   map[string]int
}

func (n *storageNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[r.Method+" "+r.URL.Path]++
	if r.Method == http.MethodDelete && !n.willing {
		http.Error(w, "the volume is in use", http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).
		Encode(metav1.Status{Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Kind: directory.Resource, Name: r.URL.Path[len("/localVolumes/"):]}})
}

func (n *storageNode) times(what string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[what]
}

// join creates a Node for the kubelet, with a certificate that the cluster signs for it.
func (n *storageNode) join(t *testing.T, name string) {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := must[[]byte](t)(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{
			CommonName:   "system:node:" + name,
			Organization: []string{"system:nodes"},
		}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, key))
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:node:" + name,
		Groups:   []string{"system:nodes", "system:authenticated"},
	}
	node := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(as))
	requests := client.CertificatesV1().CertificateSigningRequests()
	csr := must[*certificatesv1.CertificateSigningRequest](
		t,
	)(
		node.CertificatesV1().
			CertificateSigningRequests().
			Create(t.Context(), &certificatesv1.CertificateSigningRequest{
				ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-"},
				Spec: certificatesv1.CertificateSigningRequestSpec{
					SignerName: certificatesv1.KubeletServingSignerName,
					Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
					Usages: []certificatesv1.KeyUsage{
						certificatesv1.UsageDigitalSignature,
						certificatesv1.UsageServerAuth,
					},
				}}, metav1.CreateOptions{}),
	)
	var signed []byte
	until(t, "the kubelet's certificate", func(ctx context.Context) (bool, any) {
		got, err := requests.Get(ctx, csr.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if len(got.Status.Conditions) == 0 {
			got.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
				Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
				Message: "approved"}}
			_, err := requests.UpdateApproval(ctx, csr.Name, got, metav1.UpdateOptions{})
			return false, err
		}
		signed = got.Status.Certificate
		return len(signed) > 0, got.Status
	})
	block, _ := pem.Decode(signed)
	server := httptest.NewUnstartedServer(n)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{block.Bytes}, PrivateKey: key}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	made := must[*corev1.Node](t)(client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{corev1.LabelHostname: name},
		}, Spec: corev1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{}))
	t.Cleanup(func() {
		_ = client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	until(t, "the node's status", func(ctx context.Context) (bool, any) {
		made, err := client.CoreV1().Nodes().Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		made.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(server.Listener.Addr().(*net.TCPAddr).Port)
		_, err = client.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err == nil, err
	})
}

// This test does not run in parallel with others, because others count the nodes.
func TestADirectoryIsMadeGrowsAndIsRemoved(t *testing.T) {
	ns := namespace(t)
	node := &storageNode{asked: map[string]int{}}
	node.join(t, ns+"-node")
	class(t, ns, nil)
	claim := func(name string) *corev1.PersistentVolume {
		t.Helper()
		claimFor(t, ns, name, ns, nil)
		toldOf(t, ns, name, "WaitForFirstConsumer")
		// The scheduler does this when it has selected a node for a pod with the claim.
		patch := []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"` + ns + `-node"}}}`)
		if _, err := client.CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), name, types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c := claimUntil(t, ns, name, "the claim to be bound", claimIs(corev1.ClaimBound))
		if c.Annotations["volume.kubernetes.io/storage-provisioner"] != directory.Provisioner ||
			c.Annotations["pv.kubernetes.io/bind-completed"] != "yes" {
			t.Errorf("its annotations are %v", c.Annotations)
		}
		v := volumeUntil(t, c.Spec.VolumeName, corev1.VolumeBound)
		if v.Spec.Local == nil || v.Spec.Local.Path != directory.Path(v.Name) ||
			v.Spec.PersistentVolumeReclaimPolicy != "Delete" ||
			v.Spec.ClaimRef.UID != c.UID {
			t.Errorf("the volume is %+v", v.Spec)
		}
		return v
	}
	v := claim("c")
	toldOf(t, ns, "c", "ProvisioningSucceeded")
	if _, err := client.CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), "c", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	claimUntil(
		t,
		ns,
		"c",
		"the claim to grow",
		func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Capacity.Storage().String() == "3Gi" },
	)

	// The volume remains until the kubelet reports that the directory is removed.
	deleteClaim(t, ns, "c")
	volumeUntil(t, v.Name, corev1.VolumeReleased)
	request := "DELETE /localVolumes/" + v.Name
	until(
		t,
		"the kubelet to be asked twice",
		func(context.Context) (bool, any) { return node.times(request) > 1, node.asked },
	)
	if _, err := client.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the volume is gone before its directory: %v", err)
	}
	toldOf(t, "default", v.Name, "VolumeFailedDelete")
	node.mu.Lock()
	node.willing = true
	node.mu.Unlock()
	until(t, "the volume to go", func(ctx context.Context) (bool, any) {
		return gone(client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{}))
	})

	// Without its node, a volume remains with an event for the reason. With the node, it is deleted.
	v = claim("d")
	if err := client.CoreV1().Nodes().Delete(t.Context(), ns+"-node", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleteClaim(t, ns, "d")
	if v = volumeUntil(t, v.Name, corev1.VolumeFailed); v.Status.Message == "" {
		t.Error("it does not say why it stays")
	}
	node.join(t, ns+"-node")
	until(t, "the volume to go", func(ctx context.Context) (bool, any) {
		return gone(client.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{}))
	})
}

func TestClaimsWithoutClassGetTheDefaultLater(t *testing.T) {
	ns := namespace(t) // not parallel, because a default class affects all tests
	claimFor(t, ns, "c", ns, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
	toldOf(t, ns, "c", "FailedBinding")
	class(t, ns, func(c *storagev1.StorageClass) {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	})
	claimUntil(t, ns, "c", "the claim to have the class", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == ns
	})
	toldOf(t, ns, "c", "WaitForFirstConsumer")
}
