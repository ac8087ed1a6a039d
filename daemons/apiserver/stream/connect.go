package stream

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/request"
)

// admitConnect passes a connect request to webhooks and policies, as the options object of its subresource.
func (s *Streams) admitConnect(q *request.Request) error {
	if !s.server.AdmitsConnect() {
		return nil
	}
	kind, options := connectOptions(q)
	if options == nil {
		return nil
	}
	return s.server.AdmitConnect(q, corev1.SchemeGroupVersion.WithKind(kind), options)
}

func connectOptions(q *request.Request) (kind string, options runtime.Object) {
	isSet := func(name string) bool { return request.BoolParameter(q.Query, name) }
	switch q.Subresource {
	case "exec":
		return "PodExecOptions", &corev1.PodExecOptions{
			Stdin: isSet("stdin"), Stdout: isSet("stdout"), Stderr: isSet("stderr"), TTY: isSet("tty"),
			Container: q.Query.Get("container"), Command: q.Query["command"],
		}
	case "attach":
		return "PodAttachOptions", &corev1.PodAttachOptions{
			Stdin: isSet(
				"stdin",
			), Stdout: isSet("stdout"), Stderr: isSet("stderr"), TTY: isSet("tty"), Container: q.Query.Get("container"),
		}
	case "portforward":
		o := &corev1.PodPortForwardOptions{}
		for _, text := range q.Query["ports"] {
			if port, err := strconv.ParseInt(text, 10, 32); err == nil {
				o.Ports = append(o.Ports, int32(port))
			}
		}
		return "PodPortForwardOptions", o
	case "proxy":
		switch q.Served.Resource {
		case "pods":
			return "PodProxyOptions", &corev1.PodProxyOptions{Path: q.ProxyPath}
		case "services":
			return "ServiceProxyOptions", &corev1.ServiceProxyOptions{Path: q.ProxyPath}
		case "nodes":
			return "NodeProxyOptions", &corev1.NodeProxyOptions{Path: q.ProxyPath}
		}
	}
	return "", nil
}
