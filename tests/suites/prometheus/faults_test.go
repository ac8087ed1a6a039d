package prometheus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"clusterctl/certs"
	"clusterctl/daemons/config"
)

// alertFault is a fault, and the alerts that report it.
type alertFault struct {
	name       string
	alerts     []string
	begin, end func(*world)
	repeat     func(*world) // called until the alerts fire; nil: none
}

// alertFaults come one after the other. The last leaves the node under pressure for a while.
var alertFaults = []alertFault{
	{name: "the API server is gone", alerts: []string{"NoAPIServer"},
		begin: func(w *world) { w.must(w.plane.API[0].Kill()) },
		end:   func(w *world) { w.restartAPIServer() }},
	{name: "the scheduler is gone", alerts: []string{"NoScheduler"},
		begin: func(w *world) { w.must(w.plane.Scheduler.Stop()) },
		end:   func(w *world) { restart(w, w.plane.Scheduler) }},
	{name: "the controllers are gone", alerts: []string{"NoControllerManager"},
		begin: func(w *world) { w.must(w.plane.Controllers.Stop()) },
		end:   func(w *world) { restart(w, w.plane.Controllers) }},
	{name: "the kubelet is gone", alerts: []string{"NoKubelet"},
		begin: func(w *world) { w.stopKubelet() },
		end:   func(w *world) { w.startKubelet(func(*config.Kubelet, *config.KubeletFile) {}) }},
	{name: "the store is gone", alerts: []string{"NoEtcd", "APIServerErrors", "ClientErrors"},
		begin:  func(w *world) { w.must(w.plane.Etcd[0].Kill()) },
		repeat: func(w *world) { w.tryCreate("fails") },
		end: func(w *world) {
			restart(w, w.plane.Etcd[0])
			w.restartAPIServer()
		}},
	{name: "an aggregated API has nobody that serves it", alerts: []string{"AggregatedAPIAway", "AggregatedAPIErrors"},
		begin: func(*world) {},
		repeat: func(w *world) {
			w.removeAggregated()
			w.registerMissingAPI()
		},
		end: func(w *world) { w.removeAggregated() }},
	{name: "a level without seats", alerts: []string{"APIServerRefuses"},
		begin:  func(w *world) { w.closeLevel() },
		repeat: func(w *world) { w.sendRejected() },
		end:    func(w *world) { w.openLevel() }},
	{name: "a client's certificate ends soon", alerts: []string{"ClientCertificateEndsSoon"},
		begin:  func(*world) {},
		repeat: func(w *world) { w.requestWithExpiring() },
		end:    func(*world) {}},
	{name: "a daemon of another version", alerts: []string{"VersionsDiffer"},
		begin: func(w *world) {
			old := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) {
				fmt.Fprintln(out, `kubernetes_build_info{git_version="v1.29.3",major="1",minor="29"} 1`)
			}))
			w.t.Cleanup(old.Close)
			w.targets(old.Listener.Addr().String())
		},
		end: func(w *world) { w.targets() }},
	{name: "many pods", alerts: []string{"ManyPods"},
		begin: func(w *world) { w.scale(10) },
		end:   func(w *world) { w.scale(2) }},
	{name: "a slow runtime", alerts: []string{"RuntimeIsSlow", "PodsStartSlowly"},
		begin: func(w *world) {
			w.runtime.isSlow.Store(true)
			w.scale(4)
		},
		end: func(w *world) {
			w.runtime.isSlow.Store(false)
			w.scale(2)
		}},
	{name: "names that no server knows", alerts: []string{"NamesAreNotFound"},
		begin:  func(*world) {},
		repeat: func(w *world) { w.resolve("www.example.com") },
		end:    func(*world) {}},
	{name: "the kubelet's certificates end soon and are not renewed",
		alerts: []string{
			"KubeletClientCertificateEndsSoon",
			"KubeletServerCertificateEndsSoon",
			"KubeletCannotRenewCertificates",
		},
		begin:  func(w *world) { w.useExpiringCertificates() },
		repeat: func(w *world) { w.denyRequests() },
		end: func(w *world) {
			w.stopKubelet()
			w.write("node.conf", w.kubeconfig(certs.Node(nodeName), time.Now()))
			w.startKubelet(func(*config.Kubelet, *config.KubeletFile) {})
		}},
	{name: "the disk is full", alerts: []string{"NodeEvicts"},
		begin: func(w *world) { w.machine.isFull.Store(true) },
		end:   func(w *world) { w.machine.isFull.Store(false) }},
}

// restartAPIServer restarts the API server, and the processes that end when they cannot renew their lease.
func (w *world) restartAPIServer() {
	w.t.Helper()
	for _, p := range []interface {
		Stop() error
		Start(context.Context) error
	}{w.plane.API[0], w.plane.Scheduler, w.plane.Controllers} {
		w.must(p.Stop())
		w.must(p.Start(context.WithoutCancel(w.t.Context())))
		w.must(w.plane.Ready(w.t.Context(), 0))
	}
}

// smallResources is the resource requests of each container.
var smallResources = corev1.ResourceList{
	corev1.ResourceCPU:    resource.MustParse("100m"),
	corev1.ResourceMemory: resource.MustParse("32Mi"),
}

// workload creates two pods with probes.
func (w *world) workload() {
	w.t.Helper()
	labels := map[string]string{"app": "web"}
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}},
		PeriodSeconds: 1,
	}
	_, err := w.client.AppsV1().Deployments("default").Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "web:1", ReadinessProbe: probe, LivenessProbe: probe,
					Resources: corev1.ResourceRequirements{Requests: smallResources, Limits: smallResources},
				}}},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	w.awaitReady(2)
}

func (w *world) awaitReady(n int32) {
	w.t.Helper()
	w.waitFor("the pods to be ready", 2*time.Minute, func() error {
		d, err := w.client.AppsV1().Deployments("default").Get(w.t.Context(), "web", metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != n {
			err = fmt.Errorf("%d are", d.Status.ReadyReplicas)
		}
		return err
	})
}

// scale sets the number of the workload's pods.
func (w *world) scale(n int) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"spec": {"replicas": %d}}`, n)
	_, err := w.client.AppsV1().
		Deployments("default").
		Patch(w.t.Context(), "web", "application/merge-patch+json", []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

// tryCreate tries to create a ConfigMap.
func (w *world) tryCreate(name string) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	_, _ = w.client.CoreV1().
		ConfigMaps("default").
		Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
}

// makeActivity gives every daemon something to do.
func (w *world) makeActivity() {
	w.t.Helper()
	w.churnRounds++
	ctx, name, now := w.t.Context(), "churn-"+strconv.Itoa(w.churnRounds), metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0),
	}
	w.tryCreate(name)
	_, err := w.client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{Name: "c", Image: "web:1", Resources: corev1.ResourceRequirements{Requests: smallResources}},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	if w.churnRounds > 2 {
		old := "churn-" + strconv.Itoa(w.churnRounds-2)
		if err := w.client.CoreV1().Pods("default").Delete(ctx, old,
			metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)}); err != nil &&
			!apierrors.IsNotFound(err) {
			w.t.Fatal(err)
		}
		w.must(w.client.CoreV1().ConfigMaps("default").Delete(ctx, old, now))
	}
	_, err = w.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	w.must(err)
	w.resolve("kubernetes.default.svc.cluster.local")
}

// resolve queries the name server, which counts its answers.
func (w *world) resolve(name string) {
	resolver := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, w.dns)
	}}
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	_, _ = resolver.LookupHost(ctx, name+".")
}

const (
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
	missingAPIName  = "v1.nowhere.example.com"
)

// registerMissingAPI registers an API whose service does not exist.
func (w *world) registerMissingAPI() {
	w.t.Helper()
	body := `{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "` + missingAPIName + `"}, "spec": {"group": "nowhere.example.com",
		"version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10, "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "nowhere"}}}`
	w.must(w.client.RESTClient().Post().AbsPath(apiServicesPath).Body([]byte(body)).
		SetHeader("Content-Type", "application/json").Do(w.t.Context()).Error())
	w.waitFor("the API to be found unavailable", time.Minute, func() error {
		text, err := w.client.RESTClient().Get().AbsPath(apiServicesPath, missingAPIName).Do(w.t.Context()).Raw()
		if err != nil {
			return err
		}
		var found struct {
			Status struct{ Conditions []metav1.Condition }
		}
		if err := json.Unmarshal(text, &found); err != nil {
			return err
		}
		for _, c := range found.Status.Conditions {
			if c.Type == "Available" && c.Status == metav1.ConditionFalse {
				return nil
			}
		}
		return errors.New("it is not")
	})
}

func (w *world) removeAggregated() {
	w.t.Helper()
	err := w.client.RESTClient().Delete().AbsPath(apiServicesPath, missingAPIName).Do(w.t.Context()).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
}

// closeLevel puts the requests of a user into a priority level that has no seats and rejects them.
func (w *world) closeLevel() {
	w.t.Helper()
	ctx, levels := w.t.Context(), w.client.FlowcontrolV1()
	_, err := levels.PriorityLevelConfigurations().Create(ctx, &flowcontrolv1.PriorityLevelConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "closed"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: ptr.To[int32](
					0,
				), LendablePercent: ptr.To[int32](0), BorrowingLimitPercent: ptr.To[int32](0),
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	_, err = levels.FlowSchemas().Create(ctx, &flowcontrolv1.FlowSchema{
		ObjectMeta: metav1.ObjectMeta{Name: "pusher"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{
				Name: "closed",
			}, MatchingPrecedence: 10,
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{
					{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "pusher"}},
				},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{
					{
						Verbs:        []string{"*"},
						APIGroups:    []string{"*"},
						Resources:    []string{"*"},
						Namespaces:   []string{"*"},
						ClusterScope: true,
					},
				},
			}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) openLevel() {
	w.t.Helper()
	w.must(w.client.FlowcontrolV1().FlowSchemas().Delete(w.t.Context(), "pusher", metav1.DeleteOptions{}))
	w.must(w.client.FlowcontrolV1().PriorityLevelConfigurations().Delete(w.t.Context(), "closed",
		metav1.DeleteOptions{}))
}

// sendRejected sends requests as that user.
func (w *world) sendRejected() {
	as := rest.CopyConfig(w.config)
	as.Impersonate = rest.ImpersonationConfig{UserName: "pusher"}
	client, err := kubernetes.NewForConfig(as)
	w.must(err)
	var wait sync.WaitGroup
	for range 20 {
		wait.Go(func() {
			_ = client.RESTClient().
				Get().
				AbsPath("/api/v1/namespaces/default/configmaps").
				MaxRetries(0).
				Do(w.t.Context()).
				Error()
			// it is rejected
		})
	}
	wait.Wait()
}

// requestWithExpiring sends requests as a client whose certificate expires soon.
func (w *world) requestWithExpiring() {
	w.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("",
		w.write("old.conf", w.kubeconfig(certs.SuperAdmin(), shortValidityStart())))
	w.must(err)
	client, err := kubernetes.NewForConfig(cfg)
	w.must(err)
	for range 5 {
		_, err = client.CoreV1().Nodes().List(w.t.Context(), metav1.ListOptions{})
		w.must(err)
	}
}

// useExpiringCertificates starts the kubelet with certificates that expire soon.
func (w *world) useExpiringCertificates() {
	w.t.Helper()
	w.stopKubelet()
	w.write("node.conf", w.kubeconfig(certs.Node(nodeName), shortValidityStart()))
	pair, err := certs.Issue(w.ca, certs.KubeletServer(nodeName, []string{"127.0.0.1"}), shortValidityStart())
	w.must(err)
	w.write("kubelet/pki/kubelet-server-current.pem", append(pair.Cert, pair.Key...))
	w.startKubelet(func(_ *config.Kubelet, file *config.KubeletFile) { file.ServerTLSBootstrap = true })
}

// denyRequests denies the kubelet the next serving certificate.
func (w *world) denyRequests() {
	w.t.Helper()
	requests := w.client.CertificatesV1().CertificateSigningRequests()
	list, err := requests.List(w.t.Context(), metav1.ListOptions{})
	w.must(err)
	for i := range list.Items {
		r := &list.Items[i]
		if r.Spec.SignerName != certificatesv1.KubeletServingSignerName || len(r.Status.Conditions) > 0 {
			continue
		}
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Tested",
			Message: "nobody gets one",
		})
		_, err := requests.UpdateApproval(w.t.Context(), r.Name, r, metav1.UpdateOptions{})
		w.must(err)
	}
}
