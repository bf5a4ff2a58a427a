"""The tag of every value of this package that is stored or sent, and the class that has it now.

Does: as ``reshape_controller.tags``. Never: imports a class, or changes a tag. State: none.
"""

from __future__ import annotations

TAGS = {
    "Address": "home:Address",
    "Login": "logins:Login",
    "Logins": "logins:Logins",
    "ArrayJobs": "values:ArrayJobs",
    "CostView": "values:CostView",
    "DecisionEvent": "values:DecisionEvent",
    "DecisionView": "values:DecisionView",
    "Decisions": "values:Decisions",
    "ErrorView": "values:ErrorView",
    "EventView": "values:EventView",
    "GpuList": "values:GpuList",
    "GpuView": "values:GpuView",
    "Health": "values:Health",
    "History": "values:History",
    "HostList": "values:HostList",
    "HostView": "values:HostView",
    "IdentityView": "values:IdentityView",
    "JobPage": "values:JobPage",
    "JobView": "values:JobView",
    "NoteView": "values:NoteView",
    "OptionView": "values:OptionView",
    "PageLink": "page_login:PageLink",
    "RecentHistory": "values:RecentHistory",
    "Series": "values:Series",
    "SeriesPoint": "values:SeriesPoint",
    "ServiceView": "values:ServiceView",
    "SessionView": "page_login:SessionView",
    "StateView": "values:StateView",
    "Status": "values:Status",
    "TargetView": "values:TargetView",
    "Trial": "values:Trial",
    "TrialChange": "values:TrialChange",
    "FailureLine": "overview:FailureLine",
    "GpuCounts": "overview:GpuCounts",
    "JobLine": "overview:JobLine",
    "Overtaking": "overview:Overtaking",
    "Overview": "overview:Overview",
    "Usage": "usage:Usage",
    "UsageRow": "usage:UsageRow",
}
