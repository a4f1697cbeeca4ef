package cluster

// StartReference starts a further kube-apiserver, on which sessions can be played and always end alike.
// Nothing but requests changes the objects of the group there: it runs without priority and fairness, whose
// controller writes conditions into every FlowSchema, and without a garbage collector, since fairgate has
// none. The program is a kube-apiserver, "" being the cluster's own; gates are of its features.
func (c *Cluster) StartReference(program, gates string) (*Target, error) {
	server, err := c.StartApiserver("reference", program,
		"--enable-priority-and-fairness=false", "--enable-garbage-collector=false", "--feature-gates="+gates)
	if err != nil {
		return nil, err
	}
	return NewTarget(server.Name, c.Config(server.Endpoint, c.admin))
}
