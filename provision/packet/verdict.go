package packet

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"clusterctl/provision/host"
)

// setVerdict sets the verdict: where the packet ended, and what may have stopped it there.
func (w *Walk) setVerdict(c *Cluster, r *Route, sent SendOutcome, seen []NodeReport) {
	last := w.lastHop(host.KindRequest)
	end := r.endOfHop(last)
	delivered := end != nil && last != nil && last.Node == end.Node && last.To == end.At
	if delivered && end.Pod != nil {
		delivered = last.IsOutgoing && strings.HasPrefix(last.Note, "pod ")
	} else if delivered {
		delivered = !last.IsOutgoing // it came in for the machine itself
	}
	switch {
	case sent.Outcome == host.OutcomeConnected:
		w.Arrived = true
		w.Verdict = "It arrives: " + r.receiverName(end) + " answers."
	case r.Protocol == host.UDP && delivered && sent.Outcome == host.OutcomeSilent:
		w.Arrived = true
		w.Verdict = fmt.Sprintf("It reaches %s. Nothing came back, as is usual for a datagram that its "+
			"receiver does not understand.", end.name())
	case r.Service != nil && len(r.Ends) == 0:
		w.Verdict = fmt.Sprintf("It is %s: service %s/%s has no endpoint that is ready.", stopReason(sent),
			r.Service.Namespace, r.Service.Name)
		w.Reasons = append(w.Reasons, fmt.Sprintf("kubectl get pods -n %s -l %s shows the pods that it selects",
			r.Service.Namespace, selectorText(r.Service.Spec.Selector)))
	case sent.Outcome == host.OutcomeFailed:
		w.Verdict = "It was not sent: " + sent.Reason + "."
	case last == nil:
		w.setUnseenVerdict(r, sent)
	case w.lastHop(host.KindAccepted) != nil:
		back := w.lastHop(host.KindAccepted)
		w.Verdict = fmt.Sprintf("It reaches %s, which answers; the answer is lost behind %s of %s.",
			r.receiverName(end), back.Link, back.Node)
	case delivered && sent.Outcome == host.OutcomeRefused:
		w.Verdict = fmt.Sprintf("It reaches %s, where nothing listens on port %d.", end.name(), end.At.Port())
	case delivered:
		w.Verdict = fmt.Sprintf("It reaches %s, which does not answer.", end.name())
		w.Reasons = append(w.Reasons,
			"the program there hangs, or has packet rules before it, or no way back to the sender")
	default:
		w.setStoppedVerdict(c, r, sent, seen, last, end)
	}
}

func (r *Route) receiverName(e *End) string {
	if e != nil {
		return e.name()
	}
	return r.To
}

func stopReason(sent SendOutcome) string {
	if sent.Outcome == host.OutcomeRefused {
		return "refused"
	}
	return "dropped"
}

func selectorText(s map[string]string) string {
	var list []string
	for k, v := range s {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// setUnseenVerdict sets the verdict for a packet that was seen on no interface.
func (w *Walk) setUnseenVerdict(r *Route, sent SendOutcome) {
	switch {
	case r.Sender == "":
		w.Verdict = "It reaches none of the machines that were watched: it ends between this computer and the cluster."
		w.Reasons = append(w.Reasons,
			"a firewall, a missing route to "+r.Target.Addr().String()+", or an address that no machine has taken")
	case r.Pod == nil:
		w.Verdict = fmt.Sprintf("It is %s on %s itself, before it leaves any interface.", stopReason(sent), r.Sender)
		w.Reasons = append(w.Reasons, "packet rules of the machine: nft list ruleset")
	default:
		w.Verdict = fmt.Sprintf("It does not leave %s: %s has not got it.", podKey(r.Pod), r.Sender)
		w.Reasons = append(w.Reasons, "the pod's own interface or routes: kubectl exec into it, ip addr, ip route")
	}
}

// setStoppedVerdict sets the verdict for a packet that was seen, but not at its receiver.
func (w *Walk) setStoppedVerdict(c *Cluster, r *Route, sent SendOutcome, seen []NodeReport, last *Hop, end *End) {
	here := "on " + last.Node
	if end != nil && end.Node != "" && end.Node != last.Node && last.IsOutgoing {
		w.Verdict = fmt.Sprintf("It leaves %s by %s and does not come in at %s.", last.Node, last.Link, end.Node)
		if slices.ContainsFunc(seen, func(s NodeReport) bool { return s.Node == end.Node && s.Error != "" }) {
			w.Verdict = fmt.Sprintf("It leaves %s by %s. %s could not be asked.", last.Node, last.Link, end.Node)
		}
		w.Reasons = append(w.Reasons, "the network between the machines: a firewall, a switch that knows no pods' "+
			"addresses, a machine that is off")
		return
	}
	if end == nil && last.IsOutgoing && r.Service != nil {
		w.Verdict = fmt.Sprintf(
			"It leaves %s by %s, still to the service's address: nothing on %s leads it to an endpoint.", last.Node,
			last.Link, last.Node)
		w.Reasons = append(w.Reasons, "kube-proxy's rules are missing there: journalctl -u kube-proxy on "+last.Node)
		return
	}
	if end == nil && last.IsOutgoing {
		w.Verdict = fmt.Sprintf("It leaves %s by %s, for an address outside of the cluster, and nothing comes back.",
			last.Node, last.Link)
		return
	}
	w.Verdict = fmt.Sprintf("It comes in at %s of %s, and is %s there.", last.Link, last.Node, stopReason(sent))
	w.addDenyingPolicies(c, r, end)
	for _, s := range seen {
		if s.Node == last.Node && end != nil && s.Routes[end.At.Addr().String()] == "" {
			w.Reasons = append(w.Reasons, fmt.Sprintf("%s has no route to %s: journalctl -u kube-network %s", s.Node,
				end.At.Addr(), here))
		}
	}
	if len(w.Reasons) == 0 {
		w.Reasons = append(w.Reasons,
			"no policy of the API denies it: packet rules of others "+here+" (nft list ruleset), or kube-network's "+
				"are behind (journalctl -u kube-network)")
	}
}

// addDenyingPolicies adds the network policies that do not let the packet pass.
func (w *Walk) addDenyingPolicies(c *Cluster, r *Route, end *End) {
	ends := r.Ends
	if end != nil {
		ends = []End{*end}
	}
	if len(ends) == 0 {
		ends = []End{{At: r.Target}}
	}
	seen := map[string]bool{}
	for _, e := range ends {
		receiver := podOf(&e)
		if r.Pod != nil && r.Source.IsValid() {
			w.addReason(seen, c.DeniedBy(r.Pod, receiver, e.At.Addr(), networkingv1.PolicyTypeEgress, receiver,
				r.Protocol, e.At.Port()),
				"isolates pod "+podKey(r.Pod)+" for egress, and nothing lets it send to "+e.name())
		}
		if receiver != nil && (r.Pod == nil || r.Source.IsValid()) {
			w.addReason(
				seen,
				c.DeniedBy(receiver, r.Pod, r.Source, networkingv1.PolicyTypeIngress, receiver, r.Protocol,
					e.At.Port()),
				"isolates pod "+podKey(receiver)+" for ingress, and nothing lets "+r.From+" in on port "+fmt.Sprint(
					e.At.Port(),
				),
			)
		}
	}
}

func (w *Walk) addReason(seen map[string]bool, policies []string, what string) {
	for _, p := range policies {
		if text := "NetworkPolicy " + p + " " + what; !seen[text] {
			seen[text] = true
			w.Reasons = append(w.Reasons, text)
		}
	}
}
