package network

import (
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/prometheus/client_golang/prometheus"

	"clusterctl/daemons/config/inventory"
)

// routeReports reports by logs and metrics which routes there are, and where they do not suffice.
type routeReports struct {
	name             string // of this machine
	log              *slog.Logger
	routes           prometheus.Gauge
	unlisted         prometheus.Gauge
	loggedUnlisted   string // the unlisted addresses last logged
	loggedUnanswered bool   // it was logged that pods cannot respond
}

// newRouteReports returns the reports of a machine. Their metrics are not registered yet.
func newRouteReports(name string, log *slog.Logger) routeReports {
	return routeReports{
		name: name, log: log,
		routes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "network_routes", Help: "Routes to other nodes' pods.",
		}),
		unlisted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "network_unlisted_addresses",
			Help: "Addresses under which this machine sends through the overlay and which its Node does not list: " +
				"other machines drop what comes from there.",
		}),
	}
}

// logUnlisted logs when other machines drop what this machine sends through the overlay.
func (r *routeReports) logUnlisted(list []netip.Addr) {
	r.unlisted.Set(float64(len(list)))
	if text := fmt.Sprint(list); len(list) > 0 && text != r.loggedUnlisted {
		r.log.Warn("machines behind a router drop what this machine's pods send them: it comes from an address "+
			"that the machine's Node does not list as InternalIP or ExternalIP; route to those machines by an address "+
			"that it lists, or give the machine that address", "node", r.name, "addresses", list)
		r.loggedUnlisted = text
	} else if len(list) == 0 {
		r.loggedUnlisted = ""
	}
}

// logUnanswered logs once that pods behind a router cannot respond to this machine.
func (r *routeReports) logUnanswered(mute bool) {
	if mute && !r.loggedUnanswered {
		r.log.Warn("pods behind a router cannot answer this machine: it is not a node, and the inventory does not "+
			"have its address; clusterctl apply writes the inventory", "configMap", inventory.Name, "machine", r.name)
	}
	r.loggedUnanswered = mute
}
