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

// createClass creates a StorageClass that is deleted with the test.
func createClass(t *testing.T, name string, change func(*storagev1.StorageClass)) {
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
	must[*storagev1.StorageClass](t)(sharedClient.StorageV1().StorageClasses().Create(t.Context(), c,
		metav1.CreateOptions{}))
	t.Cleanup(func() {
		_ = sharedClient.StorageV1().StorageClasses().Delete(context.WithoutCancel(t.Context()), name,
			metav1.DeleteOptions{})
	})
}

func createClaim(
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
			}, Resources: corev1.VolumeResourceRequirements{Requests: resourceList("storage", "1Gi")}},
	}
	if change != nil {
		change(c)
	}
	return must[*corev1.PersistentVolumeClaim](t)(sharedClient.CoreV1().PersistentVolumeClaims(ns).Create(t.Context(),
		c, metav1.CreateOptions{}))
}

// createVolume creates a volume of a class.
func createVolume(
	t *testing.T,
	name, class, capacity string,
	change func(*corev1.PersistentVolume),
) *corev1.PersistentVolume {
	t.Helper()
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{StorageClassName: class,
			AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
			Capacity:    resourceList("storage", capacity),
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/data"},
			}},
	}
	if change != nil {
		change(v)
	}
	v = must[*corev1.PersistentVolume](t)(sharedClient.CoreV1().PersistentVolumes().Create(t.Context(), v,
		metav1.CreateOptions{}))
	t.Cleanup(func() {
		_ = sharedClient.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(t.Context()), name,
			metav1.DeleteOptions{})
	})
	return v
}

// awaitClaim waits until ok accepts a claim.
func awaitClaim(
	t *testing.T,
	ns, name, what string,
	ok func(*corev1.PersistentVolumeClaim) bool,
) (c *corev1.PersistentVolumeClaim) {
	t.Helper()
	waitFor(t, what, func(ctx context.Context) (bool, any) {
		got, err := sharedClient.CoreV1().PersistentVolumeClaims(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		c = got
		return ok(c), c
	})
	return c
}

func hasPhase(phase corev1.PersistentVolumeClaimPhase) func(*corev1.PersistentVolumeClaim) bool {
	return func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == phase }
}

func awaitVolume(t *testing.T, name string, phase corev1.PersistentVolumePhase) (v *corev1.PersistentVolume) {
	t.Helper()
	waitFor(t, name+" to be "+string(phase), func(ctx context.Context) (bool, any) {
		got, err := sharedClient.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		v = got
		return v.Status.Phase == phase, v.Status
	})
	return v
}

func awaitEvent(t *testing.T, ns, object, reason string) {
	t.Helper()
	waitFor(t, "event "+reason+" of "+object, func(ctx context.Context) (bool, any) {
		list, err := sharedClient.CoreV1().
			Events(ns).
			List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.name=" + object})
		return err == nil && len(list.Items) > 0, err
	})
}

func deleteClaim(t *testing.T, ns, name string) {
	t.Helper()
	if err := sharedClient.CoreV1().PersistentVolumeClaims(ns).Delete(t.Context(), name,
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the claim to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().PersistentVolumeClaims(ns).Get(ctx, name, metav1.GetOptions{}))
	})
}

func TestClaimsGetTheSmallestVolumeExclusively(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t) // the namespace's name is also a unique name for the class
	createVolume(t, ns+"-big", ns, "20Gi", nil)
	createVolume(t, ns+"-fits", ns, "5Gi", nil)
	createVolume(t, ns+"-small", ns, "500Mi", nil)
	for _, name := range []string{"-big", "-fits", "-small"} {
		v := awaitVolume(t, ns+name, corev1.VolumeAvailable)
		if v.Status.LastPhaseTransitionTime == nil {
			t.Errorf("%s does not say when it came to its phase", v.Name)
		}
	}
	createClaim(t, ns, "c", ns, nil)
	c := awaitClaim(t, ns, "c", "the claim to be bound", hasPhase(corev1.ClaimBound))
	if c.Spec.VolumeName != ns+"-fits" || c.Status.Capacity.Storage().String() != "5Gi" ||
		len(c.Status.AccessModes) != 1 ||
		c.Annotations["pv.kubernetes.io/bind-completed"] != "yes" ||
		c.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("it is %+v %+v", c.ObjectMeta, c.Status)
	}
	v := awaitVolume(t, ns+"-fits", corev1.VolumeBound)
	if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != c.UID ||
		v.Annotations["pv.kubernetes.io/bound-by-controller"] != "yes" {
		t.Errorf("its volume is %+v %+v", v.ObjectMeta, v.Spec.ClaimRef)
	}
	// A claim that is created again does not get the data of the former one.
	deleteClaim(t, ns, "c")
	awaitVolume(t, ns+"-fits", corev1.VolumeReleased)
	createClaim(t, ns, "c", ns, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = ns + "-fits" })
	awaitEvent(t, ns, "c", "FailedBinding")
	holdFor(t, "the new claim waits", func(ctx context.Context) (bool, any) {
		c, err := sharedClient.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "c", metav1.GetOptions{})
		return err == nil && c.Status.Phase == corev1.ClaimPending, c
	})
	// The claim is bound after an administrator has removed the volume's claimRef.
	if _, err := sharedClient.CoreV1().PersistentVolumes().Patch(t.Context(), ns+"-fits", types.MergePatchType, []byte(`{"spec":{"claimRef":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitClaim(t, ns, "c", "the new claim to be bound", hasPhase(corev1.ClaimBound))
	// The claim is lost if its volume is given to another claim.
	if _, err := sharedClient.CoreV1().PersistentVolumes().Patch(t.Context(), ns+"-fits", types.MergePatchType, []byte(`{"spec":{"claimRef":{"uid":"other"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitClaim(t, ns, "c", "the claim to be lost", hasPhase(corev1.ClaimLost))
	awaitEvent(t, ns, "c", "ClaimMisbound")
}

func TestVolumesAreReservedByName(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	createVolume(t, ns, ns, "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: ns, Name: "mine"}
	})
	awaitVolume(t, ns, corev1.VolumeAvailable)
	createClaim(t, ns, "other", ns, nil)
	createClaim(t, ns, "mine", ns, nil)
	if c := awaitClaim(t, ns, "mine", "the claim to be bound", hasPhase(corev1.ClaimBound)); c.Spec.VolumeName != ns {
		t.Errorf("it has %q", c.Spec.VolumeName)
	}
	awaitEvent(t, ns, "other", "ProvisioningFailed") // the class does not exist
	v := awaitVolume(t, ns, corev1.VolumeBound)
	if _, ours := v.Annotations["pv.kubernetes.io/bound-by-controller"]; ours {
		t.Error("what was reserved says that the controller bound it")
	}
	// A volume without a provisioner has no controller that can delete it.
	if _, err := sharedClient.CoreV1().PersistentVolumes().Patch(t.Context(), ns, types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	deleteClaim(t, ns, "mine")
	awaitVolume(t, ns, corev1.VolumeFailed)
	awaitEvent(t, "default", ns, "VolumeFailedDelete")
}

func TestEphemeralVolumesGetTheirClaims(t *testing.T) {
	t.Parallel()
	ns := createNamespace(t)
	spec := podSpec()
	spec.Volumes = []corev1.Volume{
		{
			Name: "v",
			VolumeSource: corev1.VolumeSource{
				Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{
					Spec: corev1.PersistentVolumeClaimSpec{
						StorageClassName: &ns,
						AccessModes:      []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
						Resources:        corev1.VolumeResourceRequirements{Requests: resourceList("storage", "1Gi")},
					}}},
			},
		},
	}
	p := must[*corev1.Pod](t)(
		sharedClient.CoreV1().
			Pods(ns).
			Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec},
				metav1.CreateOptions{}),
	)
	awaitClaim(t, ns, "p-v", "the claim",
		func(c *corev1.PersistentVolumeClaim) bool { return metav1.IsControlledBy(c, p) })
	now := int64(0)
	if err := sharedClient.CoreV1().Pods(ns).Delete(t.Context(), "p",
		metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the claim to go with its pod", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().PersistentVolumeClaims(ns).Get(ctx, "p-v", metav1.GetOptions{}))
	})
}

// storageNode is the kubelet of a node in this test. It removes volumes on request if it is willing.
type storageNode struct {
	mu        sync.Mutex
	isWilling bool
	requests  map[string]int
}

func (n *storageNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests[r.Method+" "+r.URL.Path]++
	if r.Method == http.MethodDelete && !n.isWilling {
		http.Error(w, "the volume is in use", http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).
		Encode(metav1.Status{Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Kind: directory.Resource, Name: r.URL.Path[len("/localVolumes/"):]}})
}

func (n *storageNode) countRequests(what string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.requests[what]
}

// createNode creates a Node for the kubelet, with a certificate that the cluster signs for it.
func (n *storageNode) createNode(t *testing.T, name string) {
	t.Helper()
	key := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := must[[]byte](t)(x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{
			CommonName:   "system:node:" + name,
			Organization: []string{"system:nodes"},
		}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, key))
	as := rest.CopyConfig(restConfig)
	as.Impersonate = rest.ImpersonationConfig{
		UserName: "system:node:" + name,
		Groups:   []string{"system:nodes", "system:authenticated"},
	}
	node := must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(as))
	requests := sharedClient.CertificatesV1().CertificateSigningRequests()
	csr := must[*certificatesv1.CertificateSigningRequest](t)(
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
	waitFor(t, "the kubelet's certificate", func(ctx context.Context) (bool, any) {
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
	made := must[*corev1.Node](t)(sharedClient.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{corev1.LabelHostname: name},
		}, Spec: corev1.NodeSpec{Unschedulable: true}}, metav1.CreateOptions{}))
	t.Cleanup(func() {
		_ = sharedClient.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{})
	})
	waitFor(t, "the node's status", func(ctx context.Context) (bool, any) {
		made, err := sharedClient.CoreV1().Nodes().Get(ctx, made.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		made.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
		made.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(server.Listener.Addr().(*net.TCPAddr).Port)
		_, err = sharedClient.CoreV1().Nodes().UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err == nil, err
	})
}

// This test does not run in parallel with others, because others count the nodes.
func TestDirectoryVolumesAreCreatedExpandedAndRemoved(t *testing.T) {
	ns := createNamespace(t)
	node := &storageNode{requests: map[string]int{}}
	node.createNode(t, ns+"-node")
	createClass(t, ns, nil)
	claim := func(name string) *corev1.PersistentVolume {
		t.Helper()
		createClaim(t, ns, name, ns, nil)
		awaitEvent(t, ns, name, "WaitForFirstConsumer")
		// The scheduler does this when it has selected a node for a pod with the claim.
		patch := []byte(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"` + ns + `-node"}}}`)
		if _, err := sharedClient.CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), name, types.MergePatchType,
			patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		c := awaitClaim(t, ns, name, "the claim to be bound", hasPhase(corev1.ClaimBound))
		if c.Annotations["volume.kubernetes.io/storage-provisioner"] != directory.Provisioner ||
			c.Annotations["pv.kubernetes.io/bind-completed"] != "yes" {
			t.Errorf("its annotations are %v", c.Annotations)
		}
		v := awaitVolume(t, c.Spec.VolumeName, corev1.VolumeBound)
		if v.Spec.Local == nil || v.Spec.Local.Path != directory.Path(v.Name) ||
			v.Spec.PersistentVolumeReclaimPolicy != "Delete" ||
			v.Spec.ClaimRef.UID != c.UID {
			t.Errorf("the volume is %+v", v.Spec)
		}
		return v
	}
	v := claim("c")
	awaitEvent(t, ns, "c", "ProvisioningSucceeded")
	if _, err := sharedClient.CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), "c", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitClaim(t, ns, "c", "the claim to grow",
		func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Capacity.Storage().String() == "3Gi" })

	// The volume remains until the kubelet reports that the directory is removed.
	deleteClaim(t, ns, "c")
	awaitVolume(t, v.Name, corev1.VolumeReleased)
	request := "DELETE /localVolumes/" + v.Name
	waitFor(t, "the kubelet to be asked twice",
		func(context.Context) (bool, any) { return node.countRequests(request) > 1, node.requests })
	if _, err := sharedClient.CoreV1().PersistentVolumes().Get(t.Context(), v.Name, metav1.GetOptions{}); err != nil {
		t.Errorf("the volume is gone before its directory: %v", err)
	}
	awaitEvent(t, "default", v.Name, "VolumeFailedDelete")
	node.mu.Lock()
	node.isWilling = true
	node.mu.Unlock()
	waitFor(t, "the volume to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{}))
	})

	// Without its node, a volume remains with an event for the reason. With the node, it is deleted.
	v = claim("d")
	if err := sharedClient.CoreV1().Nodes().Delete(t.Context(), ns+"-node", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deleteClaim(t, ns, "d")
	if v = awaitVolume(t, v.Name, corev1.VolumeFailed); v.Status.Message == "" {
		t.Error("it does not say why it stays")
	}
	node.createNode(t, ns+"-node")
	waitFor(t, "the volume to go", func(ctx context.Context) (bool, any) {
		return isGone(sharedClient.CoreV1().PersistentVolumes().Get(ctx, v.Name, metav1.GetOptions{}))
	})
}

func TestClaimsWithoutClassGetTheDefaultLater(t *testing.T) {
	ns := createNamespace(t) // not parallel, because a default class affects all tests
	createClaim(t, ns, "c", ns, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
	awaitEvent(t, ns, "c", "FailedBinding")
	createClass(t, ns, func(c *storagev1.StorageClass) {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	})
	awaitClaim(t, ns, "c", "the claim to have the class", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Spec.StorageClassName != nil && *c.Spec.StorageClassName == ns
	})
	awaitEvent(t, ns, "c", "WaitForFirstConsumer")
}
