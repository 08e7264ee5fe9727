package gnomon.spark;

import java.lang.reflect.Field;
import java.util.Collections;
import java.util.Set;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceCreationResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceReadInfo;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonFilterPushdownResult;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.runtime.AbstractPartialFunction;

/**
 * Plans each scan of a Python source by itself.
 *
 * Spark 4.1 to 4.3 keep what a Python source planned for its filters in an object that all scans of one DataFrame, view or
 * table share: the last scan planned decides which rows the others read. This rule runs once a query is optimized and
 * plans every scan again, with the filters that this scan gave away, in an object of its own.
 */
public class OwnScans extends Rule {
  private final String name;
  private final Set made = Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap()));

  public OwnScans(String name) {
    this.name = name;
  }

  public String toString() {
    return getClass().getName() + "(" + name + ")";
  }

  public TreeNode apply(TreeNode plan) {
    return ((LogicalPlan) plan).transformWithSubqueries(new AbstractPartialFunction() {
      public boolean isDefinedAt(Object node) {
        return isShared(node);
      }

      public Object applyOrElse(Object node, Function1 otherwise) {
        return isShared(node) ? withOwnScan((DataSourceV2ScanRelation) node) : otherwise.apply(node);
      }
    });
  }

  private boolean isShared(Object node) {
    if (!(node instanceof DataSourceV2ScanRelation)) {
      return false;
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
    Scan scan = relation.scan();
    boolean isOurs = relation.relation().table().name().equalsIgnoreCase(name);
    return isOurs && scan instanceof PythonScan && !made.contains(scan);
  }

  private TreeNode withOwnScan(DataSourceV2ScanRelation node) {
    PythonScan own = planned((PythonScan) node.scan());
    made.add(own);
    Object[] members = new Object[node.productArity()];
    Iterator each = node.productIterator();
    for (int i = 0; i < members.length; i++) {
      Object member = each.next();
      members[i] = member == node.scan() ? own : member;
    }
    return node.makeCopy(members);
  }

  private PythonScan planned(PythonScan scan) {
    PythonDataSourceV2 shared = (PythonDataSourceV2) member(scan, "ds");
    Filter[] filters = (Filter[]) member(scan, "supportedFilters");
    CaseInsensitiveStringMap options = (CaseInsensitiveStringMap) member(scan, "options");
    StructType schema = scan.readSchema();
    UserDefinedPythonDataSource source = shared.source();
    PythonDataSourceCreationResult made = shared.getOrCreateDataSourceInPython(name, options, Option.apply(schema));
    PythonDataSourceReadInfo info;
    if (filters.length == 0) {
      info = source.createReadInfoInPython(made, schema, false);
    } else {
      PythonFilterPushdownResult pushed =
          (PythonFilterPushdownResult) source.pushdownFiltersInPython(made, schema, filters).get();
      for (int i = 0; i < filters.length; i++) {
        if (!((Boolean) pushed.isFilterPushed().apply(i)).booleanValue()) {
          throw new IllegalStateException(name + ": filter " + filters[i] + " was taken, and is not when asked again");
        }
      }
      info = pushed.readInfo();
    }
    PythonDataSourceV2 own = new PythonDataSourceV2();
    own.setShortName(name);
    own.setReadInfo(info);
    return new PythonScan(own, name, schema, options, filters);
  }

  private static Object member(Object holder, String name) {
    try {
      Field field = holder.getClass().getDeclaredField(name);
      field.setAccessible(true);
      return field.get(holder);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }
}
