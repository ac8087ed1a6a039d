package why

// explainer gives the explainers of all topics one reader. Each topic has its own type, in the file of that name, and
// reaches the causes that belong to another topic through that topic's explainer.
type explainer struct{ *reader }

type (
	admissionExplainer struct{ explainer } // why a pod or another object could not be created
	batchExplainer     struct{ explainer } // Jobs and CronJobs
	containerExplainer struct{ explainer } // why a container does not run
	namespaceExplainer struct{ explainer } // what a terminating namespace waits for
	networkExplainer   struct{ explainer } // Services and Ingresses
	nodeExplainer      struct{ explainer } // nodes, and pods on lost nodes
	podExplainer       struct{ explainer } // the order in which causes of a pod's state are looked for
	policyExplainer    struct{ explainer } // network policies that stop packets
	referenceExplainer struct{ explainer } // objects that a pod refers to and that do not exist
	scaleExplainer     struct{ explainer } // autoscalers and disruption budgets
	scheduleExplainer  struct{ explainer } // why a pod has no node
	storageExplainer   struct{ explainer } // claims and volumes
	templateExplainer  struct{ explainer } // the object whose template must be changed to change a pod
	workloadExplainer  struct{ explainer } // Deployments, ReplicaSets, StatefulSets and DaemonSets
)

func (x explainer) admission() admissionExplainer { return admissionExplainer{x} }
func (x explainer) batch() batchExplainer         { return batchExplainer{x} }
func (x explainer) container() containerExplainer { return containerExplainer{x} }
func (x explainer) namespace() namespaceExplainer { return namespaceExplainer{x} }
func (x explainer) network() networkExplainer     { return networkExplainer{x} }
func (x explainer) node() nodeExplainer           { return nodeExplainer{x} }
func (x explainer) pod() podExplainer             { return podExplainer{x} }
func (x explainer) policy() policyExplainer       { return policyExplainer{x} }
func (x explainer) reference() referenceExplainer { return referenceExplainer{x} }
func (x explainer) scale() scaleExplainer         { return scaleExplainer{x} }
func (x explainer) schedule() scheduleExplainer   { return scheduleExplainer{x} }
func (x explainer) storage() storageExplainer     { return storageExplainer{x} }
func (x explainer) template() templateExplainer   { return templateExplainer{x} }
func (x explainer) workload() workloadExplainer   { return workloadExplainer{x} }
