package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// etcdMember is a member in the answer of /api/etcd. Empty fields are unknown.
type etcdMember struct {
	Name      string   `json:"name"`
	ID        string   `json:"id"`
	Endpoints []string `json:"endpoints"`
	Leader    *bool    `json:"leader"`
	Version   string   `json:"version"`
	DBSize    int64    `json:"dbSize"` // bytes; 0 if unknown
	Learner   *bool    `json:"learner"`
}

// etcdList is the answer of /api/etcd.
type etcdList struct {
	Members []etcdMember `json:"members"`
	Unseen  []string     `json:"unseen"`
}

// listEtcd answers /api/etcd. The API does not show the members themselves: etcd answers only clients with certificates
// of its own authority. The pods of etcd show its members in clusters whose control plane runs in static pods, and the
// metrics of the API server show the endpoints that it uses, with their sizes.
func listEtcd(ctx context.Context, s *session) (*etcdList, error) {
	list := &etcdList{Members: []etcdMember{}, Unseen: []string{
		"IDs, leader and versions: etcd answers only its own clients; run clusterctl etcd status",
	}}
	if err := s.visitor.etcdPods(ctx, list); err != nil {
		list.Unseen = append(list.Unseen, "pods of etcd: "+unseenReason(err))
	}
	if len(list.Members) == 0 {
		if err := s.visitor.etcdEndpoints(ctx, list); err != nil {
			list.Unseen = append(list.Unseen, "metrics of the API server: "+unseenReason(err))
		}
	}
	return list, ctx.Err()
}

// etcdPods adds the members that run in static pods.
func (v *visitor) etcdPods(ctx context.Context, list *etcdList) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	pods, err := v.typed.CoreV1().Pods(metav1.NamespaceSystem).List(ctx,
		metav1.ListOptions{LabelSelector: "component=etcd", Limit: listSize})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		m := etcdMember{Name: p.Spec.NodeName, Endpoints: []string{}}
		if address := p.Status.PodIP; address != "" {
			m.Endpoints = append(m.Endpoints, address)
		}
		m.Version = etcdVersion(&p)
		list.Members = append(list.Members, m)
	}
	return nil
}

// etcdVersion returns the version in the tag of the image of an etcd container, or "".
func etcdVersion(p *corev1.Pod) string {
	for _, c := range p.Spec.Containers {
		name, _, _ := strings.Cut(c.Image, "@")
		if at := strings.LastIndex(name, ":"); c.Name == "etcd" && at > strings.LastIndex(name, "/") {
			return name[at+1:]
		}
	}
	return ""
}

// maxMetrics limits the text of the API server's metrics.
const maxMetrics = 16 << 20

// storageSize is the metric with the size of each endpoint's file.
const storageSize = "apiserver_storage_size_bytes{"

// etcdEndpoints adds the endpoints that the API server uses.
func (v *visitor) etcdEndpoints(ctx context.Context, list *etcdList) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := v.send(ctx, http.MethodGet, "/metrics", "text/plain", nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(io.LimitReader(answer.Body, maxMetrics))
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), storageSize)
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		_, name, _ := strings.Cut(labels, `storage_cluster_id="`)
		name, _, _ = strings.Cut(name, `"`)
		size, err := strconv.ParseFloat(value, 64)
		if err != nil || size < 0 || size > 1<<53 {
			continue
		}
		list.Members = append(list.Members, etcdMember{Name: name, Endpoints: []string{}, DBSize: int64(size)})
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the metrics of the API server: %w", err)
	}
	return nil
}
